#include <criterion/criterion.h>
#include <string.h>

#include "base/strbuf.h"
#include "upstream/oci_challenge.h"

#define _cleanup_challenges_ _cleanup_(oci_challenges_done)

static void put_value(struct strbuf *b, const char *name, const char *value)
{
    if (value)
        strbuf_printf(b, " %s=<%s>", name, value);
}

/* All challenges as one text, that a case can be compared with in one line. */
static void show(const struct oci_challenges *c, struct strbuf *to)
{
    static const char *const names[] = {"other", "basic", "bearer"};
    for (size_t i = 0; i < c->n; i++) {
        const struct oci_challenge *x = &c->items[i];
        strbuf_printf(to, "%s%s", i ? "; " : "", names[x->scheme]);
        put_value(to, "realm", x->realm);
        put_value(to, "service", x->service);
        put_value(to, "scope", x->scope);
        put_value(to, "error", x->error);
    }
}

static void expect(const char *value, const char *want)
{
    _cleanup_challenges_ struct oci_challenges c = {0};
    _cleanup_strbuf_ struct strbuf got = STRBUF_INIT;
    struct error err = ERROR_INIT;
    cr_assert_eq(oci_challenges_add(&c, value, &err), 0);
    show(&c, &got);
    cr_assert(strcmp(strbuf_str(&got), want) == 0, "%s\n  gives %s\n   want %s", value,
              strbuf_str(&got), want);
}

Test(oci_challenge, reads_what_registries_send)
{
    expect("Bearer realm=\"https://auth.docker.io/token\",service=\"registry.docker.io\","
           "scope=\"repository:library/alpine:pull\"",
           "bearer realm=<https://auth.docker.io/token> service=<registry.docker.io> "
           "scope=<repository:library/alpine:pull>");
    expect("Bearer realm=\"https://a/t\", service=\"s\", scope=\"repository:x:pull,push "
           "repository:y:pull\", error=\"insufficient_scope\"",
           "bearer realm=<https://a/t> service=<s> scope=<repository:x:pull,push "
           "repository:y:pull> error=<insufficient_scope>");
    expect("Basic realm=\"Registry Realm\"", "basic realm=<Registry Realm>");
    expect("Bearer realm=https://a/t?x=1&y=2,service=s", "bearer realm=<https://a/t?x=1&y=2> "
                                                         "service=<s>");
    expect("Basic realm=\"a\", charset=\"UTF-8\"", "basic realm=<a>");
}

Test(oci_challenge, takes_any_case_order_and_space)
{
    expect("bEARER   SCOPE = \"a:b:c\" ,\tREALM=\t\"https://a\",,service=s ,",
           "bearer realm=<https://a> service=<s> scope=<a:b:c>");
    expect(" ,, BASIC realm=x", "basic realm=<x>");
    expect("Bearer realm=\"https://a\" service=\"b\"", "bearer realm=<https://a> service=<b>");
    expect("Bearer future=\"1,2\",realm=\"https://a\",x=y", "bearer realm=<https://a>");
    /* said twice: the first counts */
    expect("Bearer realm=\"https://a\",realm=\"https://b\"", "bearer realm=<https://a>");
    expect("Bearer realm=\"https://a\",scope=\"\"", "bearer realm=<https://a> scope=<>");
}

Test(oci_challenge, undoes_quoting)
{
    expect("Basic realm=\"a \\\"b\\\" \\\\ \\c, Bearer realm=d\"",
           "basic realm=<a \"b\" \\ c, Bearer realm=d>");
    expect("Basic realm=\"sch\xc3\xb6n\ttab\"", "basic realm=<sch\xc3\xb6n\ttab>");
}

Test(oci_challenge, reads_several_in_one_value)
{
    expect("Basic realm=\"a\", Bearer realm=\"https://b\",scope=\"c\", Negotiate, NTLM TlRMTQ==, "
           "Digest realm=\"d\", nonce=\"e\"",
           "basic realm=<a>; bearer realm=<https://b> scope=<c>; other; other; other realm=<d>");
    expect("Negotiate, Basic realm=a", "other; basic realm=<a>");
    expect("Negotiate a/b+c=,Basic realm=a", "other; basic realm=<a>");
    expect("Basic, Bearer realm=https://b", "basic realm=<>; bearer realm=<https://b>");
}

Test(oci_challenge, without_a_realm_there_is_nobody_to_ask)
{
    expect("Bearer", "other");
    expect("Bearer service=\"s\"", "other service=<s>");
    expect("Bearer realm=\"\",service=\"s\"", "other realm=<> service=<s>");
    expect("Basic", "basic realm=<>");
}

Test(oci_challenge, keeps_what_came_before_nonsense)
{
    static const char *const nonsense[] = {
        "Bearer realm=\"https://b",
        "Bearer realm=\"https://b\\",
        "Bearer realm=",
        "Bearer realm",
        "Bearer realm=\"a\"b\"",
        "Bearer realm=\"a\x01\"",
        "Bearer realm=\"a\\\x01\"",
        "Bearer/ realm=\"https://b\"",
        "Bearer realm=\"a\", scope=\"b\"c",
        "\"",
        "=",
        "Bearer realm=\"a\",scope=,",
        "Bearer realm=\"a\"; x=\"b\"",
    };
    for (size_t i = 0; i < ARRAY_LEN(nonsense); i++) {
        _cleanup_strbuf_ struct strbuf value = STRBUF_INIT;
        _cleanup_challenges_ struct oci_challenges c = {0};
        strbuf_printf(&value, "Basic realm=\"a\", %s", nonsense[i]);
        cr_assert_eq(oci_challenges_add(&c, value.data, NULL), 0);
        cr_assert(c.n >= 1 && strcmp(c.items[0].realm, "a") == 0, "%s", value.data);
        for (size_t j = 0; j < c.n; j++)
            cr_assert_neq(c.items[j].scheme, OCI_SCHEME_BEARER, "%s", value.data);
    }
    expect("", "");
    expect(" \t", "");
    expect("\x7f", "");
    expect("realm=\"a\"", "");
}

Test(oci_challenge, is_bounded)
{
    _cleanup_challenges_ struct oci_challenges c = {0};
    for (int i = 0; i < 6; i++)
        cr_assert_eq(oci_challenges_add(&c, "Basic realm=a, Basic realm=b", NULL), 0);
    cr_assert_eq(c.n, OCI_CHALLENGES_MAX);

    /* 4 KiB are read: what touches the limit is not taken for whole */
    _cleanup_challenges_ struct oci_challenges long_one = {0};
    _cleanup_strbuf_ struct strbuf value = STRBUF_INIT;
    strbuf_puts(&value, "Basic realm=a, Bearer realm=https://b/");
    while (value.len < 4096)
        strbuf_putc(&value, 'x');
    cr_assert_eq(oci_challenges_add(&long_one, value.data, NULL), 0);
    cr_assert_eq(long_one.n, 2);
    cr_assert_eq(strlen(long_one.items[1].realm), 4096 - 28);
    oci_challenges_done(&long_one);
    strbuf_putc(&value, 'x');
    cr_assert_eq(oci_challenges_add(&long_one, value.data, NULL), 0);
    cr_assert_eq(long_one.n, 1);
    cr_assert_eq(long_one.items[0].scheme, OCI_SCHEME_BASIC);
}

Test(oci_challenge, bearer_is_answered_before_basic)
{
    _cleanup_challenges_ struct oci_challenges c = {0};
    cr_assert_null(oci_challenge_best(&c));
    cr_assert_eq(oci_challenges_add(&c, "Negotiate, Digest realm=d", NULL), 0);
    cr_assert_null(oci_challenge_best(&c));
    cr_assert_eq(oci_challenges_add(&c, "Basic realm=a, Basic realm=b", NULL), 0);
    cr_assert_str_eq(oci_challenge_best(&c)->realm, "a");
    cr_assert_eq(oci_challenges_add(&c, "Bearer realm=https://c", NULL), 0);
    cr_assert_str_eq(oci_challenge_best(&c)->realm, "https://c");
}
