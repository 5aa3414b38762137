#include <criterion/criterion.h>

#include "upstream/blame.h"

static const char *blamed(const char *text, const char *prefix)
{
    static struct error err;
    err_set(&err, ERR_UPSTREAM, "%s", text);
    upstream_blame(&err, prefix);
    return err.text;
}

Test(blame, names_the_upstream_once)
{
    static const char *const whole[] = {
        "docker.io is not asked for the next 3 s after this: it broke",
        "login to upstream docker.io: it broke",
        "the bytes from upstream \"docker.io\" hash to something else",
        "docker.io/library/alpine does not exist",
        "http://docker.io:5000/v2/ answered 500",
        "it broke at docker.io.",
        "it broke at docker.io",
        "docker.iox, and docker.io too",
    };
    for (size_t i = 0; i < sizeof(whole) / sizeof(*whole); i++)
        cr_assert_str_eq(blamed(whole[i], "docker.io"), whole[i]);
    cr_assert_str_eq(blamed("it broke", ""), "it broke");
}

Test(blame, takes_no_part_of_another_word_for_it)
{
    static const char *const parts[] = {
        "",
        "it broke",
        "https://registry-1.docker.io/v2/ answered 500",
        "https://docker.io.example/v2/ answered 500",
        "https://my-docker.io/v2/ answered 500",
        "docker.iox",
    };
    char want[200];
    for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
        snprintf(want, sizeof(want), "upstream docker.io: %s", parts[i]);
        cr_assert_str_eq(blamed(parts[i], "docker.io"), want);
    }
    upstream_blame(NULL, "docker.io");
}

Test(blame, leaves_our_own_troubles_alone)
{
    struct error err = ERROR_INIT;
    err_set(&err, ERR_NO_SPACE, "the disk is full");
    upstream_blame(&err, "docker.io");
    cr_assert_str_eq(err.text, "the disk is full");
}
