/* A stand-in for upstream/hub_mirror.h: one repository of each kind, "org/name", with files that
 * are the blobs of fakes.h. Part of fakes.h. */
#ifndef WB_TESTS_SERVER_FAKES_HUB_H
#define WB_TESTS_SERVER_FAKES_HUB_H

#include "upstream/hub_mirror.h"

#define FAKE_COMMIT "0123456789abcdef0123456789abcdef01234567"
#define FAKE_OID "89abcdef0123456789abcdef0123456789abcdef"
#define FAKE_BRANCH "feature/x" /* what is not this, nor "main", nor the commit, is no revision */

struct hub_mirror {
    int nothing;
};
static struct hub_mirror fake_hub;
static enum hub_refused fake_refused; /* with fake_error: what each question is answered */
static struct hub_query fake_query;   /* what the last one was about */
static atomic_uint fake_hub_asked;

struct hub_mirror *upstreams_hub_mirror(struct upstreams *u, const char *prefix)
{
    (void)u;
    return !prefix || strcmp(prefix, "hf") == 0 ? &fake_hub : NULL;
}

static atomic_uint fake_forgotten;

void hub_mirror_forget(struct hub_mirror *m, const char *commit)
{
    (void)m, (void)commit;
    atomic_fetch_add(&fake_forgotten, 1);
}

int upstreams_may_pull(struct upstreams *u, const char *repository, const char *tag,
                       struct error *err)
{
    (void)u, (void)repository, (void)tag, (void)err;
    return 0;
}

bool upstreams_is_forward(struct upstreams *u, const char *repository)
{
    (void)u, (void)repository;
    return false;
}

void upstreams_on_small_end(struct upstreams *u, small_ended_fn fn, void *ctx)
{
    (void)u, (void)fn, (void)ctx;
}

bool hub_mirror_repository(const struct hub_mirror *m, const struct hub_query *q,
                           char ret[static REPOSITORY_MAX + 1])
{
    static const char *const kinds[] = {"", "datasets/", "spaces/"};
    char whole[REPOSITORY_MAX + 1];
    (void)m;
    if (strlen(q->name) > 200 || strstr(q->name, "--"))
        return false;
    snprintf(whole, sizeof(whole), "hf/%s%s", kinds[q->kind], q->name);
    return ascii_lower(whole, ret, REPOSITORY_MAX + 1);
}

static int fake_revision(const struct hub_query *q, struct hub_at *at, struct error *err)
{
    static const char *const known[] = {"", "HEAD", "main", FAKE_COMMIT, FAKE_BRANCH, "refs/pr/1"};
    atomic_fetch_add(&fake_hub_asked, 1);
    fake_query = *q;
    if (fake_error.code != ERR_NONE) {
        at->refused = fake_refused;
        *err = fake_error;
        return -1;
    }
    if (strcasecmp(q->name, "org/name") != 0) {
        at->refused = HUB_REFUSED_REPOSITORY;
        return err_set(err, ERR_NOT_FOUND, "Repository not found: %s", q->name);
    }
    for (unsigned i = 0; i < ARRAY_LEN(known); i++)
        if (strcmp(q->revision, known[i]) == 0) {
            strcpy(at->id, "org/name");
            strcpy(at->commit, FAKE_COMMIT);
            snprintf(at->warning, sizeof(at->warning), "%s", fake_warning);
            return 0;
        }
    at->refused = HUB_REFUSED_REVISION;
    return err_set(err, ERR_NOT_FOUND, "Invalid rev id: %s", q->revision);
}

int hub_mirror_revision(struct hub_mirror *m, const struct hub_query *q, struct hub_at *at,
                        struct error *err)
{
    struct error mine = ERROR_INIT;
    (void)m;
    return fake_revision(q, at, err ? err : &mine);
}

/* Of fakes.h's blobs; "config.json" is one that git itself has. */
static struct fake_blob *fake_file(const char *path)
{
    return strcmp(path, "held.bin") == 0 || strcmp(path, "config.json") == 0 ? &fake_held
           : strcmp(path, "dir/cold.bin") == 0                               ? &fake_cold
           : strcmp(path, "empty") == 0                                      ? &fake_empty
           : strcmp(path, "damaged.bin") == 0                                ? &fake_damaged
                                                                             : NULL;
}

int hub_mirror_file(struct hub_mirror *m, const struct hub_query *q, const char *path,
                    struct hub_file *ret, struct hub_at *at, struct error *err)
{
    (void)m;
    if (fake_revision(q, at, err) < 0)
        return -1;
    const struct fake_blob *b = fake_file(path);
    if (!b) {
        at->refused = HUB_REFUSED_ENTRY;
        return err_set(err, ERR_NOT_FOUND, "no file %s", path);
    }
    *ret = (struct hub_file){.size = b->size, .sha256 = b->digest, .has_lfs = b != &fake_empty};
    if (strcmp(path, "config.json") == 0)
        ret->has_lfs = false;
    if (ret->has_lfs)
        hex_format(b->digest.raw, 32, ret->etag);
    else
        strcpy(ret->etag, FAKE_OID);
    return 0;
}

size_t hub_pointer_text(const struct hub_file *f, char *buf, size_t size)
{
    return (size_t)snprintf(buf, size, "pointer %" PRIu64 "\n", f->size);
}

static struct error fake_open_error; /* of hub_mirror_open() alone */

int hub_mirror_open(struct upstreams *u, struct hub_mirror *m, const struct hub_query *q,
                    const char *path, const struct hub_file *f, const struct hub_at *at,
                    uint64_t first, uint64_t end, struct reader **ret, struct error *err)
{
    (void)m, (void)q, (void)at;
    if (end > f->size || first >= end)
        abort();
    if (fake_open_error.code != ERR_NONE) {
        *err = fake_open_error;
        return -1;
    }
    return reader_open(u, REPO, &fake_file(path)->digest, first, end, ret, err);
}

#define FAKE_INFO "{\"id\":\"org/name\",\"sha\":\"" FAKE_COMMIT "\",\"siblings\":[]}"

static atomic_int fake_texts; /* that nobody has given back */

int hub_mirror_info(struct hub_mirror *m, const struct hub_query *q, struct hub_text **ret,
                    struct hub_at *at, struct error *err)
{
    (void)m;
    if (fake_revision(q, at, err) < 0)
        return -1;
    fake_texts++;
    *ret = (struct hub_text *)FAKE_INFO;
    return 0;
}

const char *hub_text_bytes(const struct hub_text *t, size_t *ret_len)
{
    *ret_len = strlen((const char *)t);
    return (const char *)t;
}

void hub_text_unref(struct hub_text *t)
{
    fake_texts -= t != NULL;
}

static struct hub_listing fake_listing;

void hub_listing_done(struct hub_listing *l)
{
    *l = (struct hub_listing){0};
}

int hub_mirror_list(struct hub_mirror *m, const struct hub_query *q, struct hub_listing *ret,
                    struct hub_at *at, struct error *err)
{
    (void)m;
    *ret = fake_listing;
    return fake_revision(q, at, err);
}

int hub_mirror_expanded(struct hub_mirror *m, const struct hub_query *q, const char *folder,
                        bool recursive, struct strbuf *to, struct hub_at *at, struct error *err)
{
    (void)m, (void)folder, (void)recursive;
    if (fake_revision(q, at, err) < 0)
        return -1;
    strbuf_puts(to, "[]");
    return 0;
}

int hub_mirror_refs(struct hub_mirror *m, const struct hub_query *q, bool pull_requests,
                    struct strbuf *to, struct hub_at *at, struct error *err)
{
    (void)m, (void)pull_requests;
    if (fake_revision(q, at, err) < 0)
        return -1;
    strbuf_puts(to, "{\"branches\":[],\"tags\":[],\"converts\":[]}");
    return 0;
}

int hub_mirror_commits(struct hub_mirror *m, const struct hub_query *q, struct strbuf *to,
                       uint64_t *ret_total, struct hub_at *at, struct error *err)
{
    (void)m;
    if (fake_revision(q, at, err) < 0)
        return -1;
    strbuf_puts(to, "[]");
    *ret_total = 3;
    return 0;
}

int hub_mirror_check(struct hub_mirror *m, const struct hub_query *q, struct hub_at *at,
                     struct error *err)
{
    (void)m;
    return fake_revision(q, at, err);
}

int hub_mirror_whoami(struct hub_mirror *m, struct strbuf *to, struct error *err)
{
    (void)m, (void)to;
    return err_set(err, ERR_UNAUTHORIZED, "the token is not known");
}

#endif
