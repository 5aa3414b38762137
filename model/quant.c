/* The labels that GGUF files carry in their names. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "model/select.h"

/* llama.cpp's file types, the sizes that publishers add (…_L, …_XL), and plain type names. */
static const char *const labels[] = {
    "F32",      "BF16",      "F16",      "Q8_K_XL",       "Q8_0",    "Q8_1",   "Q8_K",   "Q6_K_XL",
    "Q6_K_L",   "Q6_K",      "Q5_K_XL",  "Q5_K_L",        "Q5_K_M",  "Q5_K_S", "Q5_K",   "Q5_0",
    "Q5_1",     "Q4_K_XL",   "Q4_K_L",   "Q4_K_M",        "Q4_K_S",  "Q4_K",   "IQ4_NL", "IQ4_XS",
    "Q4_0_4_4", "Q4_0_4_8",  "Q4_0_8_8", "Q4_1_SOME_F16", "Q4_0",    "Q4_1",   "Q4_2",   "Q4_3",
    "MXFP4",    "MXFP4_MOE", "NVFP4",    "Q3_K_XL",       "Q3_K_L",  "Q3_K_M", "Q3_K_S", "Q3_K",
    "IQ3_M",    "IQ3_S",     "IQ3_XS",   "IQ3_XXS",       "Q2_K_XL", "Q2_K_L", "Q2_K",   "Q2_K_S",
    "IQ2_M",    "IQ2_S",     "IQ2_XS",   "IQ2_XXS",       "Q2_0",    "IQ1_S",  "IQ1_M",  "TQ1_0",
    "TQ2_0",    "Q1_0",
};

static const struct {
    const char *spelling, *label;
} aliases[] = {{"FP32", "F32"}, {"FP16", "F16"}};

/* The label that the n bytes are, without the prefix; NULL when none. */
static const char *label_find(const char *text, size_t n)
{
    for (size_t i = 0; i < ARRAY_LEN(labels); i++)
        if (strlen(labels[i]) == n && strncasecmp(labels[i], text, n) == 0)
            return labels[i];
    for (size_t i = 0; i < ARRAY_LEN(aliases); i++)
        if (strlen(aliases[i].spelling) == n && strncasecmp(aliases[i].spelling, text, n) == 0)
            return aliases[i].label;
    return NULL;
}

bool quant_label_parse(const char *label, char ret[static QUANT_LABEL_MAX])
{
    bool ud = strncasecmp(label, QUANT_UD, strlen(QUANT_UD)) == 0;
    const char *bare = label + (ud ? strlen(QUANT_UD) : 0);
    const char *found = label_find(bare, strlen(bare));
    if (found)
        snprintf(ret, QUANT_LABEL_MAX, "%s%s", ud ? QUANT_UD : "", found);
    return found != NULL;
}

static bool is_delimiter(char c)
{
    return c == '-' || c == '.' || c == '_';
}

/* The longest label in the text that stands between delimiters or ends; of two as long the last. */
static bool label_in(const char *text, size_t n, char ret[static QUANT_LABEL_MAX])
{
    size_t best = 0;
    for (size_t from = 0; from < n; from++) {
        if (from && !is_delimiter(text[from - 1]))
            continue;
        size_t most = n - from < QUANT_LABEL_MAX - 1 ? n - from : QUANT_LABEL_MAX - 1;
        for (size_t len = most; len >= 3 && len >= best; len--) {
            char token[QUANT_LABEL_MAX];
            if (from + len < n && !is_delimiter(text[from + len]))
                continue;
            memcpy(token, text + from, len);
            token[len] = '\0';
            if (quant_label_parse(token, ret)) {
                best = len;
                break;
            }
        }
    }
    return best > 0;
}

bool quant_label_of(const char *path, char ret[static QUANT_LABEL_MAX])
{
    static const char extension[] = ".gguf";
    size_t n = strlen(path), ext = strlen(extension);
    if (n < ext || strcasecmp(path + n - ext, extension) != 0)
        return false;
    const char *slash = strrchr(path, '/');
    const char *base = slash ? slash + 1 : path;
    if (label_in(base, n - ext - (size_t)(base - path), ret))
        return true;
    if (!slash)
        return false;
    const char *folder = slash;
    while (folder > path && folder[-1] != '/')
        folder--;
    return label_in(folder, (size_t)(slash - folder), ret);
}
