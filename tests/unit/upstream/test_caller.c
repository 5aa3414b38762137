#include <criterion/criterion.h>
#include <string.h>

#include "base/base64.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "upstream/caller.h"
#include "upstream/callers.h"

static const char *of(const char *authorization)
{
    caller_set_authorization(authorization);
    return caller_token();
}

static const char *of_basic(const char *pair)
{
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
    strbuf_puts(&b, "Basic ");
    strbuf_put_base64(&b, pair, strlen(pair));
    return of(strbuf_str(&b));
}

Test(caller, is_what_the_client_sent)
{
    static const struct {
        const char *value, *token;
    } cases[] = {
        {"Bearer hf_abc", "hf_abc"},
        {"bearer   hf_abc", "hf_abc"},
        {"Bearer hf_abc \t ", "hf_abc"},
        {"Basic YTpi  ", "b"},
        {"Bearer", NULL},
        {"Bearer ", NULL},
        {"Bearer a b", NULL},
        {"Bearer a\tb", NULL},
        {"Bearer a\x7f", NULL},
        {"Bearer \xc3\xa9", NULL},
        {"Bearerhf_abc", NULL},
        {"Digest hf_abc", NULL},
        {"hf_abc", NULL},
        {"", NULL},
        {NULL, NULL},
        {"Basic", NULL},
        {"Basic !!!!", NULL},
        {"Basic YTpi", "b"},        /* a:b */
        {"basic  YTpiOmM=", "b:c"}, /* a:b:c */
        {"Basic YTo=", NULL},       /* a: */
        {"Basic YWI=", NULL},       /* ab */
        {"Basic YQA6Yg==", NULL}    /* a NUL :b */
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const char *token = of(cases[i].value);
        const char *shown = cases[i].value ? cases[i].value : "none";
        if (cases[i].token)
            cr_assert(token && strcmp(token, cases[i].token) == 0, "%s: %s", shown, token);
        else
            cr_assert_null(token, "%s: %s", shown, token);
    }
}

Test(caller, has_a_limit)
{
    char value[CALLER_TOKEN_MAX + 32] = "Bearer ", pair[CALLER_TOKEN_MAX + 32] = "x:";
    memset(value + 7, 'a', CALLER_TOKEN_MAX);
    memset(pair + 2, 'a', CALLER_TOKEN_MAX);
    cr_assert_eq(strlen(of(value)), CALLER_TOKEN_MAX);
    cr_assert_eq(strlen(of_basic(pair)), CALLER_TOKEN_MAX);
    value[7 + CALLER_TOKEN_MAX] = pair[2 + CALLER_TOKEN_MAX] = 'a';
    cr_assert_null(of(value));
    cr_assert_null(of_basic(pair));
}

static void *look(void *ctx)
{
    *(const char **)ctx = caller_token();
    return NULL;
}

Test(caller, belongs_to_its_thread)
{
    pthread_t thread;
    const char *there = "x";
    caller_set("mine");
    cr_assert_eq(pthread_create(&thread, NULL, look, &there), 0);
    pthread_join(thread, NULL);
    cr_assert_null(there);
    cr_assert_str_eq(caller_token(), "mine");
    caller_set(NULL);
    cr_assert_null(caller_token());
}

/* ---- those who wait for the same ------------------------------------------------------------- */

struct asked {
    char tokens[16];
    const char *good; /* "" = nobody's */
};

static struct callers callers;

/* The first letter of the one that asks, by what it was added with. */
static int ask(void *ctx, struct hub *as, struct error *err)
{
    struct asked *a = ctx;
    char letter[2] = {(char)('0' + (int)callers.refused), '\0'};
    (void)as;
    strcat(a->tokens, letter);
    if (strchr(a->good, letter[0]) && letter[0])
        return 0;
    return err_set(err, ERR_DENIED, "not %s", letter);
}

static int ask_in_vain(void *ctx, struct hub *as, struct error *err)
{
    struct asked *a = ctx;
    (void)as;
    strcat(a->tokens, "x");
    return err_set(err, ERR_UPSTREAM, "down");
}

Test(callers, are_asked_for_in_turn)
{
    struct config_upstream c = {.prefix = (char *)"hf",
                                .url = (char *)"http://127.0.0.1:1",
                                .credentials = CREDENTIALS_FORWARD};
    struct hub *h;
    struct error err = ERROR_INIT;
    struct asked a = {.good = "1"};
    cr_assert_eq(hub_new(&c, &h, &err), 0, "%s", err.text);
    cr_assert_eq(callers_init(&callers, &err), 0);
    cr_assert_lt(callers_ask(&callers, h, 0, ask, &a, &err), 0);
    cr_assert_eq(err.code, ERR_UNAUTHORIZED, "nobody is there");
    callers_add(&callers, "first");
    callers_add(&callers, "first");
    callers_add(&callers, NULL);
    cr_assert_eq(callers.n, 2);
    cr_assert_eq(callers_ask(&callers, h, 0, ask, &a, &err), 0);
    cr_assert_eq(callers_ask(&callers, h, 0, ask, &a, &err), 0);
    cr_assert_str_eq(a.tokens, "011", "one that was refused is not asked for again");
    cr_assert_lt(callers_ask(&callers, h, 0, ask_in_vain, &a, &err), 0);
    cr_assert_eq(err.code, ERR_UPSTREAM);
    cr_assert_str_eq(a.tokens, "011x", "a failure is no refusal");
    a.good = "";
    cr_assert_lt(callers_ask(&callers, h, 0, ask, &a, &err), 0);
    cr_assert(err.code == ERR_DENIED && strcmp(err.text, "not 1") == 0, "%s", err.text);
    callers_add(&callers, "third");
    a.good = "2";
    cr_assert_eq(callers_ask(&callers, h, 0, ask, &a, &err), 0);
    for (unsigned i = 0; i < 2 * CALLERS_MAX; i++)
        callers_add(&callers, (char[]){(char)('a' + (int)i), '\0'});
    cr_assert_eq(callers.n, CALLERS_MAX);
    callers_done(&callers);
    hub_free(h);
}

Test(caller, who_has_waited_waits_less)
{
    uint64_t now = clock_monotonic_ms();
    cr_assert_geq(caller_deadline(8000), now + 8000);
    caller_set_waiting(now - 3000);
    cr_assert_eq(caller_deadline(8000), now + 5000);
    cr_assert_eq(caller_deadline(2000), now - 1000, "it is over");
    caller_set_waiting(0);
    cr_assert_geq(caller_deadline(8000), now + 8000);
}
