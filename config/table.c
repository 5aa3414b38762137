#include "config/table.h"

#include <string.h>
#include <strings.h>

#include "config/config.h"

#define ROOT(member) offsetof(struct config, member), sizeof(((struct config *)0)->member)
#define UP(member)                                                                                 \
    offsetof(struct config_upstream, member), sizeof(((struct config_upstream *)0)->member)
#define ACCESS(member)                                                                             \
    offsetof(struct config_access, member), sizeof(((struct config_access *)0)->member)
#define IMMUTABLE(member)                                                                          \
    offsetof(struct config_immutable, member), sizeof(((struct config_immutable *)0)->member)
#define POLICY(member)                                                                             \
    offsetof(struct config_policy, member), sizeof(((struct config_policy *)0)->member)

/* What is not one value: its own setter knows the fields. */
#define LIST(type, member) offsetof(struct type, member), 0

#define MINUTE UINT64_C(60)
#define HOUR UINT64_C(3600)
#define DAY UINT64_C(86400)
#define KIB UINT64_C(1024)
#define TEXT_LIMIT 4096u
#define BYTES_LIMIT ((UINT64_C(1) << 53) - 1) /* what a JSON number holds exactly */
#define RATE_LIMIT UINT64_C(1000000000000)

/* clang-format off */
static const struct config_key keys[] = {
    {"listen", KEY_ADDRESS, ROOT(listen_host), 0, 0, "127.0.0.1:5000", NULL, NULL, "listen",
     "address and port to listen on, `[::1]:5000` for IPv6; port 0 picks a free one; an address "
     "that is not loopback needs `access`", USE_OPTIONAL},
    {"data", KEY_TEXT, ROOT(data), 0, TEXT_LIMIT, "./weighbridge-data", NULL, NULL, "data",
     "directory of blobs and metadata, made when missing; relative to the working directory",
     USE_OPTIONAL},
    {"external_url", KEY_URL, ROOT(external_url), 0, TEXT_LIMIT, NULL, NULL, NULL, "external-url",
     "what clients reach the server by; not set: each request's own Host", USE_OPTIONAL},
    {"default_upstream", KEY_PREFIX, ROOT(default_upstream), 0, 100, NULL, NULL, NULL, NULL,
     "prefix of the upstream that repositories are looked for in when they are neither here nor "
     "under a prefix; not set: none", USE_OPTIONAL},
    {"offline", KEY_BOOL, ROOT(offline), 0, 0, "false", NULL, NULL, NULL,
     "ask no upstream for anything: what is not held is not there", USE_OPTIONAL},
    {"delete", KEY_INDEX, ROOT(delete_denied), 0, 0, "allow", "allow|deny", NULL, NULL,
     "`deny`: tags, manifests and blobs cannot be deleted through the registry API (405)",
     USE_OPTIONAL},

    {"log.level", KEY_WORD, ROOT(log_level), 0, 0, "info", "error|warn|info|debug", NULL,
     "log-level",
     "least important kind of line that is logged", USE_OPTIONAL},

    {"limits.clients", KEY_NUMBER, ROOT(max_clients), 1, 100000, "4096", NULL, "connections", NULL,
     "client connections at once; further ones are answered with 503 and Retry-After",
     USE_OPTIONAL},
    {"limits.transfers", KEY_NUMBER, ROOT(max_transfers), 1, 1024, "16", NULL, "downloads", NULL,
     "downloads from upstreams at once; further ones wait", USE_OPTIONAL},
    {"limits.bytes_per_second", KEY_NUMBER, ROOT(max_bytes_per_s), 0, RATE_LIMIT, "0", NULL,
     "bytes", NULL,
     "of all downloads from upstreams together; 0: no limit", USE_OPTIONAL},
    {"limits.upstream_connections", KEY_NUMBER, ROOT(max_upstream_connections), 1, 4096, "256", NULL,
     "connections", NULL,
     "requests to all upstreams together at once; further ones wait, and a part is kept for upstreams "
     "that have few", USE_OPTIONAL},
    {"limits.uploads", KEY_NUMBER, ROOT(max_uploads), 1, 1000000, "10000", NULL, "uploads", NULL,
     "upload sessions that are open at once; further ones are answered with 503 and Retry-After",
     USE_OPTIONAL},
    {"limits.manifest", KEY_NUMBER, ROOT(max_manifest), KIB, 64 * KIB * KIB, "4194304", NULL,
     "bytes", NULL,
     "largest manifest that may be pushed; above it 413; the default is what every client reads",
     USE_OPTIONAL},
    {"limits.free_percent", KEY_NUMBER, ROOT(free_floor_percent), 0, 100, "5", NULL, "%", NULL,
     "part of the data directory's filesystem that stays free; below it nothing more is stored",
     USE_OPTIONAL},

    {"timeouts.drain", KEY_DURATION, ROOT(drain_s), 0, HOUR, "30s", NULL, NULL, NULL,
     "how long running answers may take after SIGTERM", USE_OPTIONAL},
    {"timeouts.client", KEY_DURATION, ROOT(client_timeout_s), 1, DAY, "60s", NULL, NULL, NULL,
     "a client connection on which nothing moves for so long is closed", USE_OPTIONAL},

    {"transfers.finish_abandoned", KEY_BOOL, ROOT(finish_abandoned), 0, 0, "true", NULL, NULL, NULL,
     "finish a download that every client has left", USE_OPTIONAL},

    {"uploads.expire", KEY_DURATION, ROOT(uploads_expire_s), 1, 365 * DAY, "24h", NULL, NULL, NULL,
     "an upload session on which nothing moves for so long is dropped, with what it has sent",
     USE_OPTIONAL},

    {"upstreams", KEY_LIST, LIST(config, upstreams), 0, 0, NULL, NULL, NULL, NULL,
     "remotes that content comes from; not set: `hf` at https://huggingface.co, and the registries "
     "`docker.io`, `ghcr.io`, `quay.io` and `registry.k8s.io`; `[]`: none", USE_OPTIONAL},
    {"upstreams[].prefix", KEY_PREFIX, UP(prefix), 0, 100, NULL, NULL, NULL, NULL,
     "first part of the repository names that this upstream answers for: `hf` serves `hf/...`",
     USE_REQUIRED},
    {"upstreams[].kind", KEY_INDEX, UP(kind), 0, 0, "huggingface", "huggingface|oci", NULL, NULL,
     "what the upstream is: the Hub or one of its kind, or an OCI registry", USE_OPTIONAL},
    {"upstreams[].url", KEY_URL, UP(url), 0, TEXT_LIMIT, "https://huggingface.co", NULL, NULL,
     "hub",
     "endpoint; kind `oci` needs one, such as `https://ghcr.io`", USE_OPTIONAL},
    {"upstreams[].token_file", KEY_TEXT, UP(token_file), 0, TEXT_LIMIT, NULL, NULL, NULL, NULL,
     "file that holds the token (of a registry: what is sent as `Bearer`); `none`: anonymous, "
     "whatever the Hub's own variables say", USE_OPTIONAL},
    {"upstreams[].token_files", KEY_TOKENS, LIST(config_upstream, token_files), 0, TEXT_LIMIT, NULL, NULL,
     NULL, NULL,
     "files with tokens for some of its repositories, the first glob that matches a name counts "
     "(in any case, without the prefix): `{\"org/*\": \"/run/secrets/org\"}`; for others "
     "`token_file`; `none`: anonymous", USE_HUB},
    {"upstreams[].credentials", KEY_INDEX, UP(credentials), 0, 0, "own", "own|forward", NULL, NULL,
     "whose rights count: this server's token for every client, or each client's own token, which "
     "is sent on for what that client asks", USE_HUB},
    {"upstreams[].auth_ttl", KEY_DURATION, UP(auth_ttl_s), 0, HOUR, "60s", NULL, NULL, NULL,
     "with `credentials` `forward`: how long it is believed that a client's token opens a "
     "repository", USE_HUB},
    {"upstreams[].token", KEY_SECRET, UP(token), 0, TEXT_LIMIT, NULL, NULL, NULL, NULL,
     "the token itself; only as an environment variable, never in the file", USE_HUB},
    {"upstreams[].ca_file", KEY_TEXT, UP(ca_file), 0, TEXT_LIMIT, NULL, NULL, NULL, NULL,
     "PEM file of certificate authorities to trust besides the system's", USE_OPTIONAL},
    {"upstreams[].client_cert", KEY_TEXT, UP(client_cert), 0, TEXT_LIMIT, NULL, NULL, NULL, NULL,
     "PEM file of the certificate that is shown to servers that ask for one; with the key in it, or "
     "in `client_key`", USE_OPTIONAL},
    {"upstreams[].client_key", KEY_TEXT, UP(client_key), 0, TEXT_LIMIT, NULL, NULL, NULL, NULL,
     "PEM file of its key, without a passphrase", USE_OPTIONAL},
    {"upstreams[].proxy", KEY_PROXY, UP(proxy), 0, TEXT_LIMIT, NULL, NULL, NULL, NULL,
     "proxy URL; `none`: no proxy; not set: for each host HTTPS_PROXY or HTTP_PROXY, unless "
     "NO_PROXY excepts it", USE_OPTIONAL},
    {"upstreams[].aliases", KEY_ALIASES, LIST(config_upstream, aliases), 0, 0, NULL, NULL,
     NULL, NULL,
     "names to look for under another id, for a Hub that does not redirect: "
     "`{\"org/name\": \"Org/Name\"}`", USE_HUB},
    {"upstreams[].include", KEY_GLOBS, UP(include), 0, 1000, NULL, NULL, NULL, NULL,
     "globs of the files that an import takes (`*` also matches `/`); empty: all", USE_HUB},
    {"upstreams[].exclude", KEY_GLOBS, UP(exclude), 0, 1000, NULL, NULL, NULL, NULL,
     "globs of the files that an import leaves out", USE_HUB},
    {"upstreams[].allow_pickle", KEY_BOOL, UP(allow_pickle), 0, 0, "false", NULL, NULL, NULL,
     "import pickle checkpoints (.bin .pt .pth .ckpt .pkl), which can run code when loaded",
     USE_HUB},
    {"upstreams[].inspection", KEY_INDEX, UP(inspection_required), 0, 0, "best-effort",
     "best-effort|required", NULL, NULL,
     "what a weight file whose header cannot be read does to an import: a note in the manifest, or "
     "a refusal", USE_HUB},
    {"upstreams[].tag_ttl", KEY_DURATION, UP(tag_ttl_s), 0, 30 * DAY, "60s", NULL, NULL, NULL,
     "how long a branch or tag that was looked up is believed", USE_OPTIONAL},
    {"upstreams[].negative_ttl", KEY_DURATION, UP(negative_ttl_s), 0, HOUR, "30s", NULL, NULL, NULL,
     "how long \"there is no such thing\" is believed", USE_OPTIONAL},
    {"upstreams[].connect_timeout", KEY_DURATION, UP(connect_timeout_s), 1, 5 * MINUTE, "10s", NULL,
     NULL, NULL, "longest time to connect", USE_OPTIONAL},
    {"upstreams[].stall_timeout", KEY_DURATION, UP(stall_timeout_s), 1, HOUR, "30s", NULL,
     NULL, NULL,
     "a connection on which nothing comes for so long is given up and resumed; also one that brings "
     "less than 1 KiB a second, after four times as long",
     USE_OPTIONAL},
    {"upstreams[].retries", KEY_NUMBER, UP(retries), 0, 100, "5", NULL, "attempts", NULL,
     "attempts of a broken download that get no further, one after the other, before it fails",
     USE_OPTIONAL},
    {"upstreams[].max_connections", KEY_NUMBER, UP(max_connections), 1, 256, "32", NULL,
     "connections", NULL, "requests to this upstream at once", USE_OPTIONAL},
    {"upstreams[].offline", KEY_BOOL, UP(offline), 0, 0, "false", NULL, NULL, NULL,
     "ask this upstream for nothing: what is not held is not there", USE_OPTIONAL},
    {"upstreams[].revalidate_timeout", KEY_DURATION, UP(revalidate_timeout_s), 1, MINUTE, "2s",
     NULL, NULL, NULL,
     "how long a client waits for news of a tag that is held, before it gets what is held",
     USE_OPTIONAL},
    {"upstreams[].max_bytes_per_second", KEY_NUMBER, UP(max_bytes_per_s), 0, RATE_LIMIT, "0", NULL,
     "bytes", NULL,
     "of all downloads from this upstream together; 0: no limit", USE_OPTIONAL},
    {"upstreams[].connections_per_blob", KEY_NUMBER, UP(connections_per_blob), 1, 64, "8", NULL,
     "connections", NULL, "ranges of one large blob that are fetched at once, at most",
     USE_OPTIONAL},
    {"upstreams[].breaker_failures", KEY_NUMBER, UP(breaker_failures), 1, 1000, "5", NULL,
     "failures", NULL,
     "requests that fail one after the other until this upstream is left alone for a while",
     USE_OPTIONAL},
    {"upstreams[].header_connections", KEY_NUMBER, UP(header_connections), 1, 64, "8", NULL,
     "connections", NULL, "weight headers and small files that one import reads at once", USE_HUB},
    {"upstreams[].search_limit", KEY_NUMBER, UP(search_limit), 0, 1000, "32", NULL, "commits", NULL,
     "commits that are tried for a manifest digest that is not known; 0: none", USE_HUB},
    {"upstreams[].username", KEY_TEXT, UP(username), 0, 256, NULL, NULL, NULL, NULL,
     "login at the registry, with `password` or `password_file`; not set: as `docker_config` says, "
     "else anonymous", USE_OCI},
    {"upstreams[].password_file", KEY_TEXT, UP(password_file), 0, TEXT_LIMIT, NULL, NULL, NULL,
     NULL, "file that holds the password", USE_OCI},
    {"upstreams[].password", KEY_SECRET, UP(password), 0, TEXT_LIMIT, NULL, NULL, NULL, NULL,
     "the password itself; only as an environment variable, never in the file", USE_OCI},
    {"upstreams[].docker_config", KEY_TEXT, UP(docker_config), 0, TEXT_LIMIT, NULL, NULL, NULL,
     NULL, "docker's `config.json` with the logins that `docker login` stored in it", USE_OCI},
    {"upstreams[].single_names", KEY_PREFIX, UP(single_names), 0, 100, NULL, NULL, NULL, NULL,
     "what goes before names of one part: `library` makes `docker.io/alpine` the registry's "
     "`library/alpine`; not set: nothing, and `library` at registry-1.docker.io", USE_OCI},
    {"upstreams[].hosts", KEY_HOSTS, UP(hosts), 0, 255, NULL, NULL, NULL, NULL,
     "further host names (`host` or `host:port`) by which clients mean this registry in `?ns=`; "
     "those of `url` and `prefix` need not be among them", USE_OCI},
    {"upstreams[].repositories", KEY_GLOBS, UP(repositories), 0, 1000, NULL, NULL, NULL, NULL,
     "globs of the repositories that may be pulled, without the prefix (`*` also matches `/`); "
     "empty: all", USE_OCI},
    {"upstreams[].exclude_repositories", KEY_GLOBS, UP(exclude_repositories), 0, 1000, NULL, NULL,
     NULL, NULL, "globs of those that may not", USE_OCI},
    {"upstreams[].media_types", KEY_GLOBS, UP(media_types), 0, 1000, NULL, NULL, NULL, NULL,
     "globs that the media types of configs and layers must match; empty: all", USE_OCI},
    {"upstreams[].max_blob", KEY_NUMBER, UP(max_blob), 0, BYTES_LIMIT, "0", NULL, "bytes", NULL,
     "largest blob that is fetched; 0: no limit", USE_OCI},
    {"upstreams[].on_gone", KEY_INDEX, UP(on_gone), 0, 0, "drop", "drop|keep", NULL, NULL,
     "what becomes of a tag that the registry says is gone, or that may not be read any more",
     USE_OCI},

    {"access", KEY_LIST, LIST(config, access), 0, 0, NULL, NULL, NULL, NULL,
     "what clients may do, the first rule that matches a repository counts; not set: everything, "
     "and only on a loopback address", USE_OPTIONAL},
    {"access[].repositories", KEY_TEXT, ACCESS(repositories), 0, 1000, NULL, NULL, NULL, NULL,
     "glob over repository names in any case (`*` also matches `/`); `**`: all", USE_REQUIRED},
    {"access[].allow", KEY_ACTIONS, ACCESS(allow), 0, 0, NULL, "pull|push|delete|admin", NULL, NULL,
     "list of what is allowed; empty: nothing", USE_REQUIRED},

    {"immutable_tags", KEY_LIST, LIST(config, immutable_tags), 0, 0, NULL, NULL, NULL, NULL,
     "tags that clients can push but, once there, neither move nor delete; not under an upstream's "
     "prefix, where tags follow the upstream; not set: none", USE_OPTIONAL},
    {"immutable_tags[].repositories", KEY_TEXT, IMMUTABLE(repositories), 0, 1000, NULL, NULL, NULL,
     NULL,
     "glob over repository names in any case (`*` also matches `/`); `**`: all", USE_REQUIRED},
    {"immutable_tags[].tags", KEY_TEXT, IMMUTABLE(tags), 0, 1000, "*", NULL, NULL, NULL,
     "glob over tags, in which upper and lower case differ", USE_OPTIONAL},

    {"policies", KEY_LIST, LIST(config, policies), 0, 0, NULL, NULL, NULL, NULL,
     "what may be had of repositories under the prefix of a Hub, through whatever API; the first "
     "that matches a repository counts; not set, or none matches: everything", USE_OPTIONAL},
    {"policies[].repositories", KEY_TEXT, POLICY(repositories), 0, 1000, NULL, NULL, NULL, NULL,
     "glob over whole repository names in any case (`*` also matches `/`): `hf/org/*`, "
     "`hf/datasets/*`, `hf/spaces/*`", USE_REQUIRED},
    {"policies[].deny", KEY_BOOL, POLICY(deny), 0, 0, "false", NULL, NULL, NULL,
     "nothing of them may be had", USE_OPTIONAL},
    {"policies[].pinned_only", KEY_BOOL, POLICY(pinned_only), 0, 0, "false", NULL, NULL, NULL,
     "only a commit (40 hex digits) may be asked for, no branch or tag", USE_OPTIONAL},
    {"policies[].revisions", KEY_GLOBS, POLICY(revisions), 0, 255, NULL, NULL, NULL, NULL,
     "globs of the branches, tags and commits that may be asked for, as clients write them, in "
     "which upper and lower case differ; empty: all", USE_OPTIONAL},
    {"policies[].formats", KEY_WORDS, POLICY(formats), 0, 32, NULL,
     "safetensors|gguf|pickle|onnx|numpy|other", NULL, NULL,
     "of weight files; empty: all; files that hold no weights are not meant", USE_OPTIONAL},
    {"policies[].max_file", KEY_NUMBER, POLICY(max_file), 0, BYTES_LIMIT, "0", NULL, "bytes", NULL,
     "largest file that may be had; 0: no limit", USE_OPTIONAL},
};
/* clang-format on */

#define ITEMS(member, scope, type, when_empty)                                                     \
    {                                                                                              \
#member, scope, offsetof(struct config, member), offsetof(struct config, n_##member),      \
            sizeof(struct type), when_empty                                                        \
    }

static const struct config_list lists[] = {
    ITEMS(upstreams, SCOPE_UPSTREAM, config_upstream, NULL),
    ITEMS(access, SCOPE_ACCESS, config_access, "anyone may do anything, on loopback only"),
    ITEMS(immutable_tags, SCOPE_IMMUTABLE, config_immutable, NULL),
    ITEMS(policies, SCOPE_POLICY, config_policy, NULL),
};

const struct config_key *config_keys(size_t *ret_n)
{
    *ret_n = ARRAY_LEN(keys);
    return keys;
}

const struct config_key *config_key_find(const char *path)
{
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        if (strcmp(keys[i].path, path) == 0)
            return &keys[i];
    return NULL;
}

const struct config_key *config_key_of_flag(const char *flag)
{
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        if (keys[i].flag && strcmp(keys[i].flag, flag) == 0)
            return &keys[i];
    return NULL;
}

enum key_scope config_key_scope(const struct config_key *key)
{
    const char *bracket = strstr(key->path, "[].");
    size_t n = bracket ? (size_t)(bracket - key->path) : 0;
    for (size_t i = 0; bracket && i < ARRAY_LEN(lists); i++)
        if (strlen(lists[i].path) == n && strncmp(key->path, lists[i].path, n) == 0)
            return lists[i].scope;
    return SCOPE_ROOT;
}

const struct config_list *config_key_list(const struct config_key *key)
{
    for (size_t i = 0; key->type == KEY_LIST && i < ARRAY_LEN(lists); i++)
        if (strcmp(lists[i].path, key->path) == 0)
            return &lists[i];
    return NULL;
}

const char *config_key_name(const struct config_key *key)
{
    const char *behind = strstr(key->path, "[].");
    return behind ? behind + 3 : key->path;
}

bool config_key_is_for(const struct config_key *key, enum upstream_kind kind)
{
    return key->use != (kind == UPSTREAM_OCI ? USE_HUB : USE_OCI);
}

bool config_key_is_section(const char *path)
{
    size_t n = strlen(path);
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        if (strncmp(keys[i].path, path, n) == 0 && keys[i].path[n] == '.')
            return true;
    return false;
}

/* Upper case, everything that is no letter or digit as '_'. */
static void put_upper(struct strbuf *to, const char *s)
{
    for (; *s; s++) {
        char c = *s;
        if (c >= 'a' && c <= 'z')
            c = (char)(c - 'a' + 'A');
        else if (!(c >= 'A' && c <= 'Z') && !(c >= '0' && c <= '9'))
            c = '_';
        strbuf_putc(to, c);
    }
}

bool config_key_variable(const struct config_key *key, const char *prefix, struct strbuf *to)
{
    enum key_scope scope = config_key_scope(key);
    /* Rules have no names: WEIGHBRIDGE_ACCESS sets the whole list. */
    if (scope != SCOPE_ROOT && scope != SCOPE_UPSTREAM)
        return false;
    if (scope == SCOPE_UPSTREAM && strcmp(config_key_name(key), "prefix") == 0)
        return false; /* the variables of an upstream are named by it */
    strbuf_puts(to, "WEIGHBRIDGE_");
    if (scope == SCOPE_UPSTREAM) {
        strbuf_puts(to, "UPSTREAMS_");
        if (prefix)
            put_upper(to, prefix);
        else
            strbuf_puts(to, "<PREFIX>");
        strbuf_putc(to, '_');
    }
    put_upper(to, config_key_name(key));
    return true;
}

int config_choice(const char *choices, const char *word)
{
    size_t n = strlen(word);
    int index = 0;
    for (const char *p = choices; p; index++) {
        const char *bar = strchr(p, '|');
        size_t len = bar ? (size_t)(bar - p) : strlen(p);
        if (len == n && memcmp(p, word, n) == 0)
            return index;
        p = bar ? bar + 1 : NULL;
    }
    return -1;
}

#define WORD_MAX 80

static char folded(char c)
{
    return (char)(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
}

static unsigned least(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

unsigned edit_distance(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b);
    unsigned rows[3][WORD_MAX + 1]; /* the last two rows of the matrix and the one being filled */
    if (n > WORD_MAX || m > WORD_MAX)
        return WORD_MAX;
    for (unsigned j = 0; j <= m; j++)
        rows[0][j] = j;
    for (unsigned i = 1; i <= n; i++) {
        unsigned *now = rows[i % 3], *up = rows[(i - 1) % 3], *upup = rows[(i + 1) % 3];
        now[0] = i;
        for (unsigned j = 1; j <= m; j++) {
            bool same = folded(a[i - 1]) == folded(b[j - 1]);
            unsigned d = least(least(up[j], now[j - 1]) + 1, up[j - 1] + !same);
            if (i > 1 && j > 1 && folded(a[i - 1]) == folded(b[j - 2]) &&
                folded(a[i - 2]) == folded(b[j - 1]))
                d = least(d, upup[j - 2] + 1);
            now[j] = d;
        }
    }
    return rows[n % 3][m];
}

bool edit_is_near(const char *word, unsigned distance)
{
    size_t n = strlen(word);
    return distance <= (n < 4 ? 1 : n < 8 ? 2 : n / 3) && distance < n;
}
