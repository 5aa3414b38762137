/* WWW-Authenticate: each line of the input is the value of one header. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/strbuf.h"
#include "upstream/oci_challenge.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
    if (!holds)
        abort();
}

static void quoted(struct strbuf *b, const char *name, const char *value)
{
    if (!value)
        return;
    strbuf_printf(b, ",%s=\"", name);
    for (; *value; value++) {
        require((unsigned char)*value >= 0x20 || *value == '\t');
        if (*value == '"' || *value == '\\')
            strbuf_putc(b, '\\');
        strbuf_putc(b, *value);
    }
    strbuf_putc(b, '"');
}

static bool same(const char *x, const char *y)
{
    return x && y ? strcmp(x, y) == 0 : x == y;
}

/* What was read, written properly, is read the same. */
static void again(const struct oci_challenge *c)
{
    struct strbuf b = STRBUF_INIT;
    struct oci_challenges read = {0};
    strbuf_puts(&b, c->scheme == OCI_SCHEME_BASIC ? "Basic " : "Bearer ");
    quoted(&b, "realm", c->realm);
    quoted(&b, "service", c->service);
    quoted(&b, "scope", c->scope);
    quoted(&b, "error", c->error);
    if (b.len <= 4096) {
        require(oci_challenges_add(&read, strbuf_str(&b), NULL) == 0);
        require(read.n == 1 && read.items[0].scheme == c->scheme);
        require(same(read.items[0].realm, c->realm) && same(read.items[0].service, c->service));
        require(same(read.items[0].scope, c->scope) && same(read.items[0].error, c->error));
    }
    oci_challenges_done(&read);
    strbuf_done(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct oci_challenges c = {0};
    _cleanup_free_ char *text = strndup((const char *)data, size);
    if (!text)
        return 0;
    char *rest = text;
    for (char *line; (line = strsep(&rest, "\n"));) {
        size_t before = c.n;
        require(oci_challenges_add(&c, line, NULL) == 0);
        require(c.n >= before && c.n <= OCI_CHALLENGES_MAX);
    }
    for (size_t i = 0; i < c.n; i++) {
        if (c.items[i].scheme == OCI_SCHEME_OTHER)
            continue;
        require(c.items[i].realm);
        require(c.items[i].scheme == OCI_SCHEME_BASIC || *c.items[i].realm);
        again(&c.items[i]);
    }
    const struct oci_challenge *best = oci_challenge_best(&c);
    require(!best || best->scheme != OCI_SCHEME_OTHER);
    oci_challenges_done(&c);
    return 0;
}
