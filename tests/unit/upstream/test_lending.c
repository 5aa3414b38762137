#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>

#include "upstream/lending.h"
#include "upstream/transfer.h"

static char dir[] = "/tmp/test-lending-XXXXXX";
static struct store *store;
static struct lendings t;
static struct digest file;
static struct error err;

static void open_all(void)
{
    struct store_options o = {.dir = dir};
    cr_assert_eq(store_open(&o, &store, &err), 0, "%s", err.text);
    cr_assert_eq(lendings_init(&t, store, &err), 0);
}

static void close_all(void)
{
    lendings_done(&t);
    store_close(store);
}

static void set_up(void)
{
    cr_assert(mkdtemp(dir));
    open_all();
    cr_assert_eq(digest_of(DIGEST_SHA256, "a file", 6, &file, &err), 0);
}

static void tear_down(void)
{
    char command[64];
    close_all();
    snprintf(command, sizeof(command), "rm -r %s", dir);
    cr_assert_eq(system(command), 0);
}

TestSuite(lending, .init = set_up, .fini = tear_down);

static struct lending *begin(void)
{
    struct lending *l;
    cr_assert_eq(lending_begin(&t, &file, &l, &err), 0);
    return l;
}

static void end(struct lending *l, bool suspect)
{
    lending_end(&t, l, suspect);
    lending_unref(&t, l);
}

static bool is_noted(void)
{
    return store_mismatch_left(store, &file, "hf/o/m") > 0;
}

Test(lending, what_turns_out_right_leaves_nothing)
{
    struct lending *l = begin();
    cr_assert_not(is_noted(), "nothing has gone out");
    cr_assert_eq(lending_announce(&t, l, &err), 0);
    cr_assert_eq(lending_announce(&t, l, &err), 0);
    cr_assert(is_noted(), "a crash now leaves this");
    cr_assert_eq(lending_left(&t, l), 0, "what went out is this fetch's own");
    end(l, false);
    cr_assert_not(is_noted());
}

Test(lending, what_is_suspect_bars_those_who_come)
{
    struct lending *l = begin(), *other = begin();
    cr_assert_eq(lending_announce(&t, l, &err), 0);
    end(l, true);
    cr_assert_gt(lending_left(&t, other), TRANSFER_MISMATCH_S - 10);
    cr_assert_leq(lending_left(&t, other), TRANSFER_MISMATCH_S);
    cr_assert_eq(lending_announce(&t, other, &err), 0);
    end(other, false);
    cr_assert(is_noted(), "that one was right, and did not make the other one so");
    l = begin();
    cr_assert_gt(lending_left(&t, l), 0);
    end(l, false);
    cr_assert(is_noted());
}

Test(lending, one_that_ends_leaves_the_others_theirs)
{
    struct lending *l = begin(), *other = begin();
    cr_assert_eq(lending_announce(&t, l, &err), 0);
    cr_assert_eq(lending_announce(&t, other, &err), 0);
    end(l, false);
    cr_assert(is_noted(), "the other one still lends");
    end(other, false);
    cr_assert_not(is_noted());
}

Test(lending, a_crash_is_found_out)
{
    struct lending *l = begin();
    cr_assert_eq(lending_announce(&t, l, &err), 0);
    close_all(); /* without an end */
    free(l);
    open_all();
    l = begin();
    cr_assert_gt(lending_left(&t, l), 0);
    end(l, false);
    cr_assert(is_noted(), "who has some of it has it still");
}
