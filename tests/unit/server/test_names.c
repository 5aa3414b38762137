/* The ways in which one repository can be asked for, over stand-ins for what is behind the server.
 */
#include "http_case.h"

static struct config_upstream upstreams[] = {
    {.prefix = "hf", .url = "https://huggingface.co"},
    {.prefix = "docker.io",
     .kind = UPSTREAM_OCI,
     .url = "https://registry-1.docker.io",
     .single_names = "library"},
    {.prefix = "ghcr", .kind = UPSTREAM_OCI, .url = "https://ghcr.io"},
    {.prefix = "corp", .kind = UPSTREAM_OCI, .url = "http://127.0.0.1:5555"},
};

static void begin(void)
{
    config.upstreams = upstreams;
    config.n_upstreams = ARRAY_LEN(upstreams);
    set_up();
}

TestSuite(names, .init = begin, .fini = tear_down, .timeout = 120);

/* What a pull of that target asked for: always a manifest that is not there. */
static const char *meaning(const char *target)
{
    fake_reference = (struct reference){0};
    request("HEAD", target);
    cr_expect_eq(got.status, 404, "%s: %.300s", target, strbuf_str(&got.all));
    return fake_reference.repository;
}

static void expect_meaning(const char *target, const char *want)
{
    const char *means = meaning(target);
    cr_expect_str_eq(means, want, "%s: %s instead of %s", target, means, want);
}

Test(names, ns_says_the_upstream)
{
    static const char *const aliases[] = {"docker.io", "index.docker.io", "registry-1.docker.io",
                                          "Docker.IO"};
    char target[256];
    for (unsigned i = 0; i < ARRAY_LEN(aliases); i++) {
        snprintf(target, sizeof(target), "/v2/org/app/manifests/v1?ns=%s", aliases[i]);
        expect_meaning(target, "docker.io/org/app");
        expect_header("OCI-Namespace", aliases[i]);
    }
    expect_meaning("/v2/org/app/manifests/v1?ns=ghcr.io", "ghcr/org/app");
    expect_meaning("/v2/org/app/manifests/v1?ns=ghcr.io:443", "ghcr/org/app");
    expect_meaning("/v2/org/app/manifests/v1?x=1&ns=127.0.0.1%3A5555&ns=ghcr.io", "corp/org/app");
    expect_header("OCI-Namespace", "127.0.0.1:5555");
    expect_meaning("/v2/org/app/manifests/v1", "org/app");
    expect_header("OCI-Namespace", "");
}

Test(names, ns_is_put_before_a_name_once)
{
    expect_meaning("/v2/docker.io/org/app/manifests/v1?ns=docker.io", "docker.io/org/app");
    expect_meaning("/v2/ghcr/org/app/manifests/v1?ns=ghcr.io", "ghcr/org/app");
    expect_meaning("/v2/hf/org/app/manifests/v1?ns=docker.io", "docker.io/hf/org/app");
    /* the case of Hub names is for upstreams to know */
    expect_meaning("/v2/Org/Name/manifests/v1?ns=huggingface.co", "hf/org/name");
    cr_expect_str_eq(fake_reference.as_given, "hf/Org/Name");
}

Test(names, peer_bug_78_ns_that_is_no_upstreams)
{
    unsigned asked = atomic_load(&fake_asked);
    static const char *const unknown[] = {"evil.example",   "ghcr.io:444", "127.0.0.1",
                                          "http://ghcr.io", "ghcr.io/",    "a%0d%0aX-Y:%20z",
                                          "docker.io%20"};
    char target[256];
    for (unsigned i = 0; i < ARRAY_LEN(unknown); i++) {
        snprintf(target, sizeof(target), "/v2/org/app/manifests/v1?ns=%s", unknown[i]);
        request("GET", target);
        expect_error(404, "NAME_UNKNOWN");
        cr_expect(strstr(got.body, "there are: hf, docker.io, ghcr, corp"), "%s", got.body);
        expect_header("OCI-Namespace", "");
        expect_header("X-Y", "");
    }
    request("GET", "/v2/org/app/manifests/v1?ns=%zz");
    expect_error(400, "NAME_INVALID");
    cr_expect_eq(atomic_load(&fake_asked), asked, "nobody is asked");
    cr_expect_eq(request("GET", "/v2/?ns=evil.example"), 200, "nothing is asked for");
}

Test(names, ns_that_is_this_server)
{
    char target[256];
    snprintf(target, sizeof(target), "/v2/org/app/manifests/v1?ns=LOCALHOST:%u", url_port(server));
    expect_meaning(target, "org/app");
    expect_header("OCI-Namespace", "");
    expect_meaning("/v2/org/app/manifests/v1?ns=", "org/app");
    config.external_url = "https://mirror.example/registry";
    expect_meaning("/v2/org/app/manifests/v1?ns=Mirror.example", "org/app");
    config.external_url = NULL;
}

Test(names, peer_bug_82_names_of_one_part)
{
    expect_meaning("/v2/docker.io/alpine/manifests/v1", "docker.io/library/alpine");
    expect_meaning("/v2/docker.io/library/alpine/manifests/v1", "docker.io/library/alpine");
    expect_meaning("/v2/alpine/manifests/v1?ns=docker.io", "docker.io/library/alpine");
    expect_meaning("/v2/docker.io/org/app/manifests/v1", "docker.io/org/app");
    expect_meaning("/v2/ghcr/app/manifests/v1", "ghcr/app");
    expect_meaning("/v2/alpine/manifests/v1", "alpine");
}

Test(names, too_long_with_what_goes_before_it)
{
    char name[REPOSITORY_MAX + 1], target[2 * REPOSITORY_MAX];
    memset(name, 'a', REPOSITORY_MAX);
    name[REPOSITORY_MAX] = '\0';
    name[1] = '/';
    snprintf(target, sizeof(target), "/v2/%s/manifests/v1", name);
    expect_meaning(target, name);
    snprintf(target, sizeof(target), "/v2/%s/manifests/v1?ns=ghcr.io", name);
    request("GET", target);
    expect_error(400, "NAME_INVALID");
    snprintf(target, sizeof(target), "/v2/%s/manifests/v1?ns=ghcr.io", name + 5);
    cr_expect_eq(strlen(meaning(target)), REPOSITORY_MAX);
}

Test(names, default_upstream)
{
    config.default_upstream = "docker.io";
    start();
    expect_meaning("/v2/library/alpine/manifests/v1", "docker.io/library/alpine");
    expect_header("OCI-Namespace", "");
    expect_meaning("/v2/alpine/manifests/v1", "docker.io/library/alpine");
    expect_meaning("/v2/alpine/manifests/v1?ns=ghcr.io", "ghcr/alpine");
    expect_meaning("/v2/hf/org/name/manifests/v1", "hf/org/name");
    cr_expect_eq(request("GET", "/v2/" REPO "/manifests/v1"), 200, "what is here goes before it");
    cr_expect_str_eq(fake_reference.repository, REPO);
    cr_expect_eq(request("GET", held_path), 200);
    /* writes are meant for us */
    cr_expect_eq(request_h("POST", "/v2/alpine/blobs/uploads/", "Content-Length: 0\r\n"), 202);
    cr_expect_eq(strncmp(fake_sessions[0].repository, "alpine", 7), 0);
    request("DELETE", "/v2/alpine/manifests/v1");
    cr_expect_str_eq(fake_removed_from, "alpine");
    cr_expect_eq(request("GET", "/v2/"), 200);
}

Test(names, a_local_repository_that_may_not_be_pulled_looks_like_none)
{
    struct config_access rules[] = {{"docker.io/**", ACCESS_PULL}};
    config.default_upstream = "docker.io";
    config.access = rules;
    config.n_access = ARRAY_LEN(rules);
    start();
    expect_meaning("/v2/" REPO "/manifests/v1", "docker.io/" REPO);
    request("GET", "/v2/ghcr/org/app/manifests/v1");
    expect_error(403, "DENIED");
    request("GET", "/v2/org/app/manifests/v1?ns=ghcr.io");
    expect_error(403, "DENIED");
    cr_expect(strstr(got.body, "ghcr/org/app"), "the rules are about the whole name");
}

Test(names, what_is_to_be_used_again)
{
    char path[512];
    request_h("POST", "/v2/alpine/blobs/uploads/?ns=docker.io", "Content-Length: 0\r\n");
    cr_expect_eq(got.status, 202);
    const char *location = answer_header(&got, "Location");
    const char *begin = strstr(location, "/v2/alpine/blobs/uploads/");
    cr_assert(begin && strstr(begin, "?ns=docker.io"), "%s", location);
    snprintf(path, sizeof(path), "%s", begin);
    cr_expect_eq(request("GET", path), 204, "leads to the same repository");
    cr_expect_str_eq(fake_sessions[0].repository, "docker.io/library/alpine");

    config.default_upstream = "docker.io";
    start();
    request("GET", held_path);
    location = answer_header(&got, "Location");
    cr_expect(strstr(location, held_path) && !strchr(location, '?'), "%s", location);
    request("GET", "/v2/Local/Model/tags/list?n=2");
    cr_expect_eq(got.status, 200);
    cr_expect(strstr(got.body, "\"name\":\"Local/Model\""), "%s", got.body);
    expect_header("Link", "</v2/Local/Model/tags/list?n=2&last=b>; rel=\"next\"");
}

Test(names, pages_keep_ns)
{
    fake_referrers = 5;
    config.upstreams[3].prefix = "local"; /* REPO is of this upstream now */
    start();
    request("GET", "/v2/model/tags/list?n=2&ns=127.0.0.1:5555");
    cr_expect_eq(got.status, 200, "%.300s", strbuf_str(&got.all));
    cr_expect(strstr(got.body, "\"name\":\"model\""), "%s", got.body);
    expect_header("Link", "</v2/model/tags/list?n=2&last=b&ns=127.0.0.1:5555>; rel=\"next\"");
    char path[256];
    snprintf(path, sizeof(path), "/v2/model/blobs/%s?ns=127.0.0.1:5555", held_digest);
    cr_expect_eq(request("GET", path), 200);
    cr_expect(strstr(answer_header(&got, "Location"), path), "%s", answer_header(&got, "Location"));
    snprintf(path, sizeof(path), "/v2/model/referrers/%s?n=1&ns=127.0.0.1:5555", held_digest);
    cr_expect_eq(request("GET", path), 200);
    cr_expect(strstr(answer_header(&got, "Link"), "&ns=127.0.0.1:5555>"), "%s",
              answer_header(&got, "Link"));
    config.upstreams[3].prefix = "corp";
}

Test(names, mounts)
{
    char path[512];
    fake_mount_from = "docker.io/library/alpine";
    snprintf(path, sizeof(path), "/v2/org/app/blobs/uploads/?ns=docker.io&mount=%s&from=alpine",
             held_digest);
    cr_expect_eq(request_h("POST", path, "Content-Length: 0\r\n"), 201, "%s", fake_looked_at);
    snprintf(path, sizeof(path), "/v2/team/app/blobs/uploads/?mount=%s&from=docker.io/alpine",
             held_digest);
    cr_expect_eq(request_h("POST", path, "Content-Length: 0\r\n"), 201, "%s", fake_looked_at);
    snprintf(path, sizeof(path), "/v2/team/app/blobs/uploads/?mount=%s&from=alpine", held_digest);
    cr_expect_eq(request_h("POST", path, "Content-Length: 0\r\n"), 202);
}

Test(names, the_operators_names)
{
    request("DELETE", "/admin/v1/references/docker.io/alpine:v1");
    cr_expect_str_eq(fake_removed_from, "docker.io/library/alpine", "%.300s", strbuf_str(&got.all));
}
