#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "upstream/oci_credentials.h"

/* A wall clock that can be put forward: files get older than they are. */
static time_t skew_s;

time_t time(time_t *t)
{
    struct timespec now = {0};
    clock_gettime(CLOCK_REALTIME, &now);
    now.tv_sec += skew_s;
    if (t)
        *t = now.tv_sec;
    return now.tv_sec;
}

/* ---- docker's config.json -------------------------------------------------------------------- */

/* "user:password", "identity=...", "registry=..." or "" for none; NULL: an error. */
static const char *find(const char *text, const char *host, struct error *err)
{
    static char got[256];
    _cleanup_credential_ struct oci_credential c = {0};
    struct error ignored = ERROR_INIT;
    int rc = oci_docker_config_find(text, strlen(text), host, &c, err ? err : &ignored);
    got[0] = '\0';
    if (rc < 0) {
        cr_assert(!c.username && !c.password && !c.identity_token && !c.registry_token);
        return NULL;
    }
    if (c.registry_token)
        snprintf(got, sizeof(got), "registry=%s", c.registry_token);
    else if (c.identity_token)
        snprintf(got, sizeof(got), "identity=%s", c.identity_token);
    else if (c.username)
        snprintf(got, sizeof(got), "%s:%s", c.username, c.password);
    cr_assert_eq(rc, got[0] ? 1 : 0);
    return got;
}

Test(oci_docker_config, knows_the_spellings_of_a_host)
{
    static const struct {
        const char *key, *host;
        bool same;
    } cases[] = {
        {"https://index.docker.io/v1/", "registry-1.docker.io", true},
        {"registry-1.docker.io", "registry-1.docker.io", true},
        {"docker.io", "registry-1.docker.io", true},
        {"index.docker.io", "docker.io", true},
        {"https://Index.Docker.io/v1/", "index.docker.io", true},
        {"quay.io", "quay.io", true},
        {"QUAY.io", "quay.io", true},
        {"https://quay.io", "quay.io", true},
        {"https://quay.io/", "quay.io", true},
        {"http://quay.io/v2/", "quay.io", true},
        {"quay.io/v1", "quay.io", true},
        {"reg.example:5000", "reg.example:5000", true},
        {"https://reg.example:5000/v2", "reg.example:5000", true},
        {"[::1]:5000", "[::1]:5000", true},
        {"reg.example", "reg.example:5000", false},
        {"reg.example:5000", "reg.example", false},
        {"quay.io/some", "quay.io", false},
        {"quay.io/v1/x", "quay.io", false},
        {"https://quay.io/v3/", "quay.io", false},
        {"quay.io.evil", "quay.io", false},
        {"evil.quay.io", "quay.io", false},
        {"docker.io", "quay.io", false},
        {"hub.docker.io", "docker.io", false},
        {"", "quay.io", false},
        {"https://", "quay.io", false},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char text[256];
        snprintf(text, sizeof(text), "{\"auths\":{\"%s\":{\"auth\":\"dTpw\"}}}", cases[i].key);
        const char *got = find(text, cases[i].host, NULL);
        cr_assert(got && strcmp(got, cases[i].same ? "u:p" : "") == 0, "%s for %s: %s",
                  cases[i].key, cases[i].host, got);
    }
}

Test(oci_docker_config, reads_what_docker_writes)
{
    static const struct {
        const char *entry, *want;
    } cases[] = {
        {"{\"auth\":\"dTpw\"}", "u:p"},
        {"{\"auth\":\"dTpwOnE=\"}", "u:p:q"},
        {"{\"auth\":\"dTpwAAA=\"}", "u:p"}, /* NULs behind it */
        {"{\"auth\":\"dTo=\"}", "u:"},
        {"{\"auth\":\"\",\"username\":\"a\",\"password\":\"b\"}", "a:b"},
        {"{\"username\":\"a\",\"password\":\"b\",\"email\":\"\"}", "a:b"},
        {"{\"auth\":\"dTpw\",\"identitytoken\":\"id\"}", "identity=id"},
        {"{\"auth\":\"Og==\",\"identitytoken\":\"id\"}", "identity=id"},
        {"{\"auth\":\"dTpw\",\"identitytoken\":\"id\",\"registrytoken\":\"r\"}", "registry=r"},
        {"{}", ""},
        {"null", ""},
        {"{\"auth\":1}", ""},
        {"{\"username\":\"a\"}", ""},
        {"{\"auth\":\"dTpw\\n\"}", NULL},
        {"{\"auth\":\"dXA=\"}", NULL},     /* no colon */
        {"{\"auth\":\"OnA=\"}", NULL},     /* no user */
        {"{\"auth\":\"dTpwAHE=\"}", NULL}, /* a NUL inside */
        {"{\"auth\":\"%%%%\"}", NULL},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char text[256];
        struct error err = ERROR_INIT;
        snprintf(text, sizeof(text), "{\"auths\":{\"a\":{\"auth\":\"eHg6eHg=\"},\"quay.io\":%s}}",
                 cases[i].entry);
        const char *got = find(text, "quay.io", &err);
        cr_assert(got && cases[i].want ? strcmp(got, cases[i].want) == 0 : got == cases[i].want,
                  "%s: %s %s", cases[i].entry, got, err.text);
        if (!cases[i].want) {
            cr_assert_eq(err.code, ERR_INVALID);
            cr_assert(strstr(err.text, "quay.io"), "%s", err.text);
        }
    }
    /* an empty entry does not hide a later one */
    cr_assert_str_eq(find("{\"auths\":{\"docker.io\":{},\"index.docker.io\":{\"auth\":\"dTpw\"},"
                          "\"https://index.docker.io/v1/\":{\"auth\":\"eHg6eHg=\"}}}",
                          "docker.io", NULL),
                     "u:p");
    cr_assert_str_eq(find("{}", "quay.io", NULL), "");
    cr_assert_null(find("", "quay.io", NULL));
    cr_assert_null(find("[]", "quay.io", NULL));
    cr_assert_null(find("{\"auths\":[]}", "quay.io", NULL));
}

Test(oci_docker_config, says_what_to_do_about_helpers)
{
    struct error err = ERROR_INIT;
    static const char store[] = "{\"auths\":{\"quay.io\":{}},\"credsStore\":\"desktop\"}";
    cr_assert_null(find(store, "quay.io", &err));
    cr_assert_eq(err.code, ERR_UNSUPPORTED);
    cr_assert(strstr(err.text, "docker-credential-desktop") && strstr(err.text, "password_file"),
              "%s", err.text);
    static const char helper[] =
        "{\"credHelpers\":{\"other\":\"b\",\"https://quay.io/v2/\":\"ecr-login\"}}";
    cr_assert_null(find(helper, "quay.io", &err));
    cr_assert(strstr(err.text, "ecr-login"), "%s", err.text);
    cr_assert_str_eq(find(helper, "ghcr.io", NULL), "");
    /* what stands in the file counts */
    cr_assert_str_eq(
        find("{\"auths\":{\"quay.io\":{\"auth\":\"dTpw\"}},\"credsStore\":\"x\"}", "quay.io", NULL),
        "u:p");
    cr_assert_str_eq(
        find("{\"credsStore\":\"\",\"credHelpers\":{\"quay.io\":\"\"}}", "quay.io", NULL), "");
}

/* ---- files that change ----------------------------------------------------------------------- */

static char folder[64], path[96];

static void make_folder(void)
{
    strcpy(folder, "/tmp/wb-oci-credentials-XXXXXX");
    cr_assert(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/f", folder);
}

static void drop_folder(void)
{
    unlink(path);
    rmdir(folder);
}

TestSuite(oci_credentials, .init = make_folder, .fini = drop_folder);

/* Written in place, and as old as age_s seconds. */
static void write_file(const char *text, unsigned age_s)
{
    FILE *f = fopen(path, "w");
    cr_assert(f && fputs(text, f) >= 0 && fclose(f) == 0);
    struct timeval times[2];
    gettimeofday(&times[0], NULL);
    times[0].tv_sec -= age_s;
    times[1] = times[0];
    cr_assert_eq(utimes(path, times), 0);
}

static struct oci_credentials *make(struct oci_auth_options o)
{
    struct oci_credentials *c = NULL;
    struct error err = ERROR_INIT;
    o.url = "https://quay.io";
    cr_assert_eq(oci_credentials_new(&o, &c, &err), 0, "%s", err.text);
    return c;
}

static void expect_password(struct oci_credentials *c, const char *want)
{
    _cleanup_credential_ struct oci_credential got = {0};
    cr_assert_eq(oci_credentials_get(c, &got, NULL), 0);
    cr_assert_str_eq(got.username, "u");
    cr_assert_str_eq(got.password, want);
}

static void expect_token(struct oci_credentials *c, const char *want)
{
    _cleanup_credential_ struct oci_credential got = {0};
    cr_assert_eq(oci_credentials_get(c, &got, NULL), 0);
    cr_assert_str_eq(got.registry_token, want);
    cr_assert(!got.username && !got.password);
}

static void expect_advice(struct oci_credentials *c, const char *text)
{
    char advice[512];
    oci_credentials_advice(c, advice, sizeof(advice));
    cr_assert(strstr(advice, text), "%s", advice);
}

Test(oci_credentials, reads_a_password_file_when_it_changes)
{
    write_file(" \n first word\r\n", 100);
    struct oci_credentials *c =
        make((struct oci_auth_options){.username = "u", .password_file = path});
    expect_password(c, "first word");
    expect_advice(c, "check upstreams[].password_file");
    /* the same length, and the file's age alone does not tell either */
    write_file(" \n other word\r\n", 100);
    expect_password(c, "other word");
    /* renamed into place, as secrets are */
    char next[128];
    snprintf(next, sizeof(next), "%s/g", folder);
    FILE *f = fopen(next, "w");
    cr_assert(f && fputs("third", f) >= 0 && fclose(f) == 0);
    cr_assert_eq(rename(next, path), 0);
    expect_password(c, "third");
    oci_credentials_free(c);
}

Test(oci_credentials, sees_a_change_of_an_old_file_that_hides_its_time)
{
    struct stat before, now;
    struct timeval times[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
    skew_s = 1000; /* old, so that it is not read again on suspicion */
    write_file("first", 100);
    cr_assert_eq(utimes(path, times), 0);
    struct oci_credentials *c =
        make((struct oci_auth_options){.username = "u", .password_file = path});
    expect_password(c, "first");
    cr_assert_eq(stat(path, &before), 0);
    do { /* until the kernel's coarse clock has ticked */
        write_file("other", 100);
        cr_assert_eq(utimes(path, times), 0);
        cr_assert_eq(stat(path, &now), 0);
    } while (now.st_ctim.tv_sec == before.st_ctim.tv_sec &&
             now.st_ctim.tv_nsec == before.st_ctim.tv_nsec);
    cr_assert(now.st_ino == before.st_ino && now.st_size == before.st_size &&
              now.st_mtim.tv_sec == before.st_mtim.tv_sec);
    expect_password(c, "other");
    oci_credentials_free(c);
}

Test(oci_credentials, sees_changes_between_two_ticks_of_the_clock)
{
    const struct timeval times[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
    write_file("start", 100);
    struct oci_credentials *c =
        make((struct oci_auth_options){.username = "u", .password_file = path});
    for (int i = 0; i < 100; i++) {
        write_file(i % 2 ? "first" : "other", 100);
        cr_assert_eq(utimes(path, times), 0);
        expect_password(c, i % 2 ? "first" : "other");
    }
    oci_credentials_free(c);
}

Test(oci_credentials, keeps_the_last_good_one)
{
    write_file("good", 100);
    struct oci_credentials *c =
        make((struct oci_auth_options){.username = "u", .password_file = path});
    write_file("", 0);
    expect_password(c, "good");
    expect_advice(c, "is empty");
    unlink(path);
    expect_password(c, "good");
    expect_advice(c, "could not be read again");
    write_file("two\nlines", 0);
    expect_password(c, "good");
    write_file("new", 0);
    expect_password(c, "new");
    expect_advice(c, "check");
    oci_credentials_free(c);
}

Test(oci_credentials, a_token_file_is_one_word)
{
    write_file("\ttok-1\n", 100);
    struct oci_credentials *c = make((struct oci_auth_options){.token_file = path});
    expect_token(c, "tok-1");
    write_file("two words", 0);
    expect_token(c, "tok-1");
    write_file("tok-2", 0);
    expect_token(c, "tok-2");
    expect_advice(c, "upstreams[].token_file");
    oci_credentials_free(c);
}

Test(oci_credentials, follows_docker_logins)
{
    write_file("{}", 100);
    struct oci_credentials *c = make((struct oci_auth_options){.docker_config = path});
    _cleanup_credential_ struct oci_credential got = {0};
    cr_assert_eq(oci_credentials_get(c, &got, NULL), 0);
    cr_assert(!got.username && !got.registry_token && !got.identity_token);
    expect_advice(c, "has no login for quay.io");
    write_file("{\"auths\":{\"quay.io\":{\"auth\":\"dTpw\"}}}", 0);
    expect_password(c, "p");
    write_file("{\"auths\":{\"quay.io\":{\"auth\":", 0); /* being written */
    expect_password(c, "p");
    /* a logout */
    write_file("{\"auths\":{}}", 0);
    cr_assert_eq(oci_credentials_get(c, &got, NULL), 0);
    cr_assert_null(got.username);
    oci_credentials_free(c);
}

Test(oci_credentials, the_first_that_is_set_counts)
{
    write_file("from-file", 100);
    struct oci_credentials *c = make((struct oci_auth_options){
        .username = "u", .password = "inline", .password_file = path, .token_file = path});
    expect_password(c, "inline");
    oci_credentials_free(c);
    c = make((struct oci_auth_options){.token_file = path, .docker_config = "/nonexistent"});
    expect_token(c, "from-file");
    oci_credentials_free(c);
    c = make((struct oci_auth_options){0});
    expect_advice(c, "set upstreams[].username");
    oci_credentials_free(c);
}

Test(oci_credentials, says_which_setting_is_wrong)
{
    write_file("", 100);
    const struct {
        struct oci_auth_options o;
        const char *text;
        enum err_code code;
    } cases[] = {
        {{.username = "u"}, "password_file", ERR_INVALID},
        {{.username = "a:b", .password = "p"}, "colon", ERR_INVALID},
        {{.username = "a\n", .password = "p"}, "upstreams[].username", ERR_INVALID},
        {{.username = "u", .password_file = path}, "password_file", ERR_INVALID},
        {{.token_file = path}, "token_file", ERR_INVALID},
        {{.token_file = "/nonexistent"}, "token_file", ERR_IO},
        {{.docker_config = path}, "docker_config", ERR_INVALID},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct oci_auth_options o = cases[i].o;
        struct oci_credentials *c = NULL;
        struct error err = ERROR_INIT;
        o.url = "https://quay.io";
        cr_assert_eq(oci_credentials_new(&o, &c, &err), -1, "%zu", i);
        cr_assert_eq(err.code, cases[i].code, "%zu: %s", i, err.text);
        cr_assert(strstr(err.text, cases[i].text), "%s", err.text);
    }
    struct oci_auth_options o = {.url = "ftp://x"};
    struct oci_credentials *c = NULL;
    cr_assert_eq(oci_credentials_new(&o, &c, NULL), -1);
}

Test(oci_credentials, basic)
{
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
    oci_credential_basic("us\xc3\xa9r", "p:w", &b);
    cr_assert_str_eq(b.data, "Basic dXPDqXI6cDp3");
}
