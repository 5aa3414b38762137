#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "upstream/loop.h"

#define ONE "weighbridge; id=00000000000000a1"
#define TWO "weighbridge; id=00000000000000b2"

Test(loop, says_who_it_came_through)
{
    struct loop l = {0};
    char own[100], want[LOOP_VALUE_MAX], got[LOOP_VALUE_MAX];
    snprintf(own, sizeof(own), "weighbridge; id=%s", loop_own_id());
    cr_assert_str_eq(loop_value(&l, got), own);
    loop_add(&l, ONE " ,\t" TWO);
    loop_add(&l, "WEIGHBRIDGE;id=00000000000000c3");
    snprintf(want, sizeof(want), "%s, %s, weighbridge; id=00000000000000c3, %s", ONE, TWO, own);
    cr_assert_str_eq(loop_value(&l, got), want);
    cr_assert(!l.is_closed);
}

Test(loop, knows_itself_again)
{
    struct loop first = {0}, second = {0};
    struct error err = ERROR_INIT;
    char value[LOOP_VALUE_MAX];
    loop_set(&first);
    cr_assert_eq(loop_check("up", &err), 0);
    loop_add(&second, loop_value(&first, value));
    loop_set(&second);
    cr_assert_eq(loop_get().n, 1);
    cr_assert_lt(loop_check("up", &err), 0);
    cr_assert_eq(err.code, ERR_LOOP);
    cr_assert(strstr(err.text, "upstream up leads"));
    loop_set(NULL);
    cr_assert_eq(loop_check("up", &err), 0);
}

Test(loop, passes_nothing_else_on)
{
    static const char *const others[] = {
        "",
        ",,,",
        "cloudflare; subreqs=1",
        "weighbridge",
        "weighbridge; id=",
        "weighbridge; id=00000000000000a",
        "weighbridge; id=00000000000000a11",
        "weighbridge; id=00000000000000A1",
        "weighbridge; id=00000000000000a1; x=\"y\"",
        "weighbridge; id=00000000000000a1 x",
        "weighbridge2; id=00000000000000a1",
        "x weighbridge; id=00000000000000a1",
        "weighbridge;,id=00000000000000a1",
        "weighbridge; id=00000000,000000a1",
    };
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        struct loop l = {0};
        loop_add(&l, others[i]);
        cr_assert_eq(l.n, 0, "%s", others[i]);
    }
    struct loop l = {0};
    loop_add(&l, "a; b=c, " ONE ", d");
    cr_assert_eq(l.n, 1);
}

Test(loop, keeps_the_last_ones)
{
    struct loop l = {0};
    char entry[100], value[LOOP_VALUE_MAX];
    for (unsigned i = 0; i < 3 * LOOP_SERVERS_MAX; i++) {
        snprintf(entry, sizeof(entry), "weighbridge; id=%016x", i);
        loop_add(&l, entry);
    }
    cr_assert_eq(l.n, LOOP_SERVERS_MAX);
    loop_value(&l, value);
    cr_assert(strncmp(value, "weighbridge; id=0000000000000010, ", 34) == 0, "%s", value);
    cr_assert_str_eq(value + strlen(value) - LOOP_ID_LEN, loop_own_id());
    cr_assert_lt(strlen(value), LOOP_VALUE_MAX - 1);
}
