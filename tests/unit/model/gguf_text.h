/* A GGUF of nothing but metadata, from a text: "general.architecture=llama llama.block_count=2
 * llama.attention.head_count_kv=[8,0] llama.attention.causal=[true,false]". Integers are u32,
 * negative ones i32, what is neither is a string. */
#ifndef WB_TESTS_GGUF_TEXT_H
#define WB_TESTS_GGUF_TEXT_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline void gguf_text_put(FILE *f, uint64_t n, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++)
        fputc((int)(n >> 8 * i & 255), f);
}

static inline void gguf_text_string(FILE *f, const char *s, size_t n)
{
    gguf_text_put(f, n, 8);
    fwrite(s, 1, n, f);
}

enum { GGUF_TEXT_U32 = 4, GGUF_TEXT_I32 = 5, GGUF_TEXT_BOOL = 7, GGUF_TEXT_STRING = 8 };

static inline int gguf_text_type(const char *s, size_t n)
{
    if (n && strspn(s, "0123456789") >= n)
        return GGUF_TEXT_U32;
    if (n > 1 && s[0] == '-' && strspn(s + 1, "0123456789") >= n - 1)
        return GGUF_TEXT_I32;
    if ((n == 4 && memcmp(s, "true", 4) == 0) || (n == 5 && memcmp(s, "false", 5) == 0))
        return GGUF_TEXT_BOOL;
    return GGUF_TEXT_STRING;
}

static inline void gguf_text_value(FILE *f, int type, const char *s, size_t n)
{
    if (type == GGUF_TEXT_STRING)
        gguf_text_string(f, s, n);
    else if (type == GGUF_TEXT_BOOL)
        gguf_text_put(f, s[0] == 't', 1);
    else
        gguf_text_put(f, (uint64_t)strtoll(s, NULL, 10), 4);
}

static inline void gguf_text_array(FILE *f, const char *s, size_t n)
{
    size_t count = n > 0;
    for (size_t i = 0; i < n; i++)
        count += s[i] == ',';
    int type = gguf_text_type(s, strcspn(s, ",]"));
    gguf_text_put(f, 9, 4);
    gguf_text_put(f, (uint64_t)type, 4);
    gguf_text_put(f, count, 8);
    for (const char *p = s; count--; p += strcspn(p, ",]") + 1)
        gguf_text_value(f, type, p, strcspn(p, ",]"));
}

/* The caller frees it. */
static inline char *gguf_from_text(const char *text, size_t *ret_len)
{
    char *ret = NULL;
    size_t keys = 0;
    FILE *f = open_memstream(&ret, ret_len);
    if (!f)
        abort();
    for (const char *p = text; *p; p++)
        keys += *p == '=';
    fwrite("GGUF\3\0\0\0", 1, 8, f);
    gguf_text_put(f, 0, 8);
    gguf_text_put(f, keys, 8);
    for (const char *p = text + strspn(text, " "); *p; p += strspn(p, " ")) {
        const char *value = strchr(p, '=') + 1;
        size_t n = strcspn(value, " ");
        gguf_text_string(f, p, (size_t)(value - 1 - p));
        if (value[0] == '[') {
            gguf_text_array(f, value + 1, n - 2);
        } else {
            int type = gguf_text_type(value, n);
            gguf_text_put(f, (uint64_t)type, 4);
            gguf_text_value(f, type, value, n);
        }
        p = value + n;
    }
    fclose(f);
    return ret;
}

#endif
