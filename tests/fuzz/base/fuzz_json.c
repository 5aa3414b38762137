/* Any bytes: the parser refuses them or gives a tree whose strings are clean, and what we write of
 * such a string is read back as the same. */
#include <assert.h>
#include <string.h>

#include "base/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_string(const char *s)
{
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
    _cleanup_json_ struct json *again = NULL;
    assert(utf8_is_valid(s, strlen(s)));
    json_put_string(&b, s);
    assert(!strbuf_failed(&b));
    assert(json_parse(b.data, b.len, &again, NULL) == 0);
    assert(strcmp(json_str(again), s) == 0);
}

static void walk(const struct json *j)
{
    uint64_t n;
    double d;
    if (json_u64(j, &n))
        assert(json_double(j, &d) && (uint64_t)d == n);
    if (json_str(j))
        check_string(json_str(j));
    for (const struct json *c = json_first(j); c; c = json_next(c)) {
        if (json_is_object(j)) {
            check_string(json_key(c));
            assert(json_length(j) > 100 || json_get(j, json_key(c)) == c);
        }
        walk(c);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    _cleanup_json_ struct json *j = NULL;
    struct error err = ERROR_INIT;
    if (json_parse((const char *)data, size, &j, &err) == 0) {
        assert(j && utf8_is_valid((const char *)data, size) && !memchr(data, '\0', size));
        walk(j);
    } else {
        assert(!j && err.code == ERR_INVALID && err.text[0]);
    }
    return 0;
}
