/* One client being sent a blob: from the file when it is held, from the running transfer when not.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "upstream/loop.h"
#include "upstream/upstreams_private.h"

/* A transfer may have to wait for a place; a client is told to come again rather than left hanging.
 */
#define START_WAIT_MS 60000

struct reader {
    enum reader_kind kind;
    uint64_t size;
    struct blob *blob;         /* held */
    struct transfer *transfer; /* or under way */
    struct transfer_place place;
    uint64_t first, end; /* what will be read */
};

static bool is_part(const struct reader *r)
{
    return r->first > 0 || r->end < r->size;
}

/* ---- where a Hub file's bytes come from ---------------------------------------------------- */

struct hub_source {
    struct hub *hub;
    struct link link; /* keeps the origin's strings */
    struct digest digest;
};

static int hub_source_locate(void *ctx, struct http_location *ret, struct error *err)
{
    struct hub_source *s = ctx;
    return hub_locate(s->hub, s->link.origin.repo_id, s->link.origin.commit, s->link.origin.path,
                      &s->digest, s->link.size, ret, err);
}

static void hub_source_release(void *ctx)
{
    struct hub_source *s = ctx;
    link_done(&s->link);
    free(s);
}

/* Takes the link over on success. */
static int hub_source_make(struct hub *h, struct link *link, const struct digest *d,
                           struct transfer_source *ret, struct error *err)
{
    struct hub_source *s = calloc(1, sizeof(*s));
    if (!s)
        return err_set(err, ERR_NOMEM, "out of memory for a transfer");
    s->hub = h;
    s->link = *link;
    s->digest = *d;
    *link = (struct link){0};
    *ret = (struct transfer_source){
        .upstream = hub_config(h)->prefix,
        .pool = hub_pool(h),
        .retries = hub_config(h)->retries,
        .max_connections = hub_config(h)->connections_per_blob,
        .locate = hub_source_locate,
        .release = hub_source_release,
        .ctx = s,
    };
    return 0;
}

static int source_make(struct upstreams *u, struct link *link, const struct digest *d,
                       struct transfer_source *ret, struct error *err)
{
    const struct config_upstream *c = upstreams_named(u, link->origin.upstream);
    if (!c)
        return err_set(err, ERR_NOT_FOUND,
                       "this blob comes from the upstream \"%s\", which is no longer configured",
                       link->origin.upstream);
    if (config_is_offline(u->config, c)) {
        char text[DIGEST_TEXT_MAX];
        return err_set(err, ERR_NOT_FOUND,
                       "blob %s is not here, and upstream %s is offline by configuration",
                       digest_format(d, text), c->prefix);
    }
    struct mirror *m = upstreams_mirror(u, c);
    if (m ? mirror_source(m, link, d, ret, err) < 0
          : hub_source_make(upstreams_hub(u, c), link, d, ret, err) < 0)
        return -1;
    ret->limiter = upstreams_limiter_of(u, c);
    return 0;
}

/* ---- opening ------------------------------------------------------------------------------- */

int reader_no_blob(struct upstreams *u, const char *repository, const struct digest *d,
                   struct error *err)
{
    char text[DIGEST_TEXT_MAX];
    return err_set(err, ERR_NOT_FOUND, "%s has no blob %s%s", repository, digest_format(d, text),
                   config_upstream_of(u->config, repository)
                       ? " that is known here; if the upstream has it, pull the manifest first"
                       : ": it was never pushed or mounted there, or was deleted");
}

/* Only an import makes such a blob, and it held it: somebody took its file away. */
static int bytes_gone(const char *repository, const struct digest *d, struct error *err)
{
    char text[DIGEST_TEXT_MAX];
    return err_set(
        err, ERR_NOT_FOUND,
        "the file of blob %s is gone from the data directory; push it to %s again, or, if that "
        "is an imported model, pull its manifest by tag",
        digest_format(d, text), repository);
}

/* Wrong bytes went out for this digest a short while ago, or bytes that a crash took before they
 * were checked: a client that holds some of them must not be given a right end to a wrong
 * beginning.
 */
static int refuse_suspect(struct upstreams *u, const struct digest *d, uint64_t first,
                          struct error *err)
{
    uint64_t left = first ? store_mismatch_left(u->store, d) : 0;
    if (!left)
        return 0;
    char text[DIGEST_TEXT_MAX];
    return err_set(err, ERR_DIGEST_MISMATCH,
                   "bytes of %s that were sent out a short while ago were wrong, or were lost here "
                   "before they could be checked; what was received before must not be resumed: "
                   "delete the partial file and download it from byte 0 (ranges are refused for "
                   "another %" PRIu64 " s)",
                   digest_format(d, text), left);
}

/* A claimed link is no way to what came, or comes, for another repository. */
static int check_claim(struct upstreams *u, const char *repository, const struct digest *d,
                       struct error *err)
{
    struct mirror *m = upstreams_mirror_of(u, repository);
    int proved = m ? mirror_prove(m, repository, d, err) : 1;
    return proved == 0 ? reader_no_blob(u, repository, d, err) : proved < 0 ? -1 : 0;
}

static bool feeds(struct upstreams *u, const char *repository, const struct transfer *x)
{
    struct mirror *m = upstreams_mirror_of(u, repository);
    return m && mirror_feeds(m, repository, x);
}

static int join(struct upstreams *u, const char *repository, struct link *link,
                const struct digest *d, struct reader *r, struct error *err)
{
    struct transfer_source source = {0};
    uint64_t size = link->size, have;
    bool claimed = link->claimed;
    if (loop_check(link->origin.upstream, err) < 0)
        return -1;
    bool running = transfer_find(u->transfers, d, &r->transfer) > 0;
    r->kind = running ? READER_JOIN : READER_FILL;
    if (!running && (source_make(u, link, d, &source, err) < 0 ||
                     transfer_join(u->transfers, d, size, &source, &r->transfer, err) < 0))
        return -1;
    if (claimed && !feeds(u, repository, r->transfer) && check_claim(u, repository, d, err) < 0)
        return -1;
    if (transfer_size(r->transfer) != size)
        return transfer_sizes_differ(transfer_size(r->transfer), size, err);
    transfer_move(r->transfer, &r->place, r->first);
    if (is_part(r))
        transfer_hurry(r->transfer, r->first, r->end);
    int rc = transfer_wait(r->transfer, UINT64_MAX, TRANSFER_HEADERS,
                           clock_monotonic_ms() + START_WAIT_MS, &have, err);
    if (rc == 0) {
        struct transfer_stats stats;
        transfers_stats(u->transfers, &stats);
        err_set(err, ERR_BUSY,
                "the download has not begun within %d s: %" PRIu64 " of %u places "
                "(limits.transfers) are taken%s",
                START_WAIT_MS / 1000, stats.running, u->config->max_transfers,
                stats.running < u->config->max_transfers ? "; the upstream is slow to answer" : "");
        if (err)
            err->retry_after = 10;
        return -1;
    }
    if (rc > 0 && claimed && feeds(u, repository, r->transfer))
        mirror_proved(upstreams_mirror_of(u, repository), repository, d);
    return rc < 0 ? -1 : 0;
}

/* As store_link_get(). */
static int find_link(struct upstreams *u, const char *repository, const struct digest *d,
                     struct link *ret, struct error *err)
{
    struct mirror *m = upstreams_mirror_of(u, repository);
    return m ? mirror_link(m, repository, d, ret, err)
             : store_link_get(u->store, repository, d, ret, err);
}

/* An answer that was refused, as one of another size is; not an upstream that is down. */
static bool link_may_be_wrong(const struct error *err)
{
    return err && !err->retry_after &&
           (err->code == ERR_UPSTREAM || err->code == ERR_CONFLICT ||
            err->code == ERR_DIGEST_MISMATCH);
}

static int open_blob(struct upstreams *u, const char *repository, const struct digest *d,
                     struct reader *r, struct error *err)
{
    struct link link = {0};
    int found = find_link(u, repository, d, &link, err);
    if (found <= 0)
        return found < 0 ? -1 : reader_no_blob(u, repository, d, err);
    r->size = link.size;
    if (r->end > r->size)
        r->end = r->size;
    int held = store_blob_open(u->store, d, &r->blob, err);
    int rc = held < 0 ? -1 : 0;
    if (held > 0) {
        r->kind = READER_HIT;
        if (link.claimed)
            rc = check_claim(u, repository, d, err);
        if (rc == 0 && blob_size(r->blob) != link.size)
            rc = transfer_sizes_differ(blob_size(r->blob), link.size, err);
    } else if (held == 0) {
        rc = link.has_origin ? join(u, repository, &link, d, r, err)
                             : bytes_gone(repository, d, err);
        if (rc < 0 && link_may_be_wrong(err) && upstreams_mirror_of(u, repository))
            mirror_check_link(upstreams_mirror_of(u, repository), repository, d);
    }
    link_done(&link);
    return rc;
}

int reader_open(struct upstreams *u, const char *repository, const struct digest *d, uint64_t first,
                uint64_t end, struct reader **ret, struct error *err)
{
    struct reader *r = calloc(1, sizeof(*r));
    if (!r)
        return err_set(err, ERR_NOMEM, "out of memory for a reader");
    r->first = first;
    r->end = end;
    if (open_blob(u, repository, d, r, err) < 0 || refuse_suspect(u, d, first, err) < 0) {
        reader_close(r);
        return -1;
    }
    *ret = r;
    return 0;
}

int reader_stat(struct upstreams *u, const char *repository, const struct digest *d,
                uint64_t *ret_size, struct error *err)
{
    struct link link = {0};
    int found = find_link(u, repository, d, &link, err);
    if (found <= 0)
        return found;
    int rc = link.held || link.has_origin ? 1 : bytes_gone(repository, d, err);
    if (link.held && link.claimed && check_claim(u, repository, d, err) < 0)
        rc = err && err->code == ERR_NOT_FOUND ? 0 : -1;
    if (rc > 0)
        *ret_size = link.size;
    link_done(&link);
    return rc;
}

/* ---- reading ------------------------------------------------------------------------------- */

uint64_t reader_size(const struct reader *r)
{
    return r->size;
}

enum reader_kind reader_kind(const struct reader *r)
{
    return r->kind;
}

int reader_fd(const struct reader *r)
{
    return r->blob ? blob_fd(r->blob) : -1;
}

ssize_t reader_read(struct reader *r, uint64_t offset, void *buf, size_t len, unsigned wait_ms,
                    bool *ret_waiting, struct error *err)
{
    *ret_waiting = false;
    if (offset >= r->size || !len)
        return 0;
    if (r->blob)
        return blob_read(r->blob, offset, buf, len, err);
    uint64_t have, deadline_ms = clock_monotonic_ms() + wait_ms;
    int rc = is_part(r)
                 ? transfer_wait_part(r->transfer, offset, r->end, deadline_ms, &have, err)
                 : transfer_wait(r->transfer, offset, TRANSFER_DONE, deadline_ms, &have, err);
    if (rc < 0)
        return -1;
    if (rc == 0) {
        *ret_waiting = true;
        return 0;
    }
    ssize_t n = is_part(r) ? transfer_read_part(r->transfer, offset, buf, len, err)
                           : transfer_read(r->transfer, offset, buf, len, err);
    if (n > 0)
        transfer_move(r->transfer, &r->place, offset + (uint64_t)n);
    return n;
}

int reader_wait(struct reader *r, uint64_t seen, unsigned wait_ms, uint64_t *ret_have,
                struct error *err)
{
    if (r->blob) {
        *ret_have = r->size;
        return 1;
    }
    return transfer_wait(r->transfer, seen, TRANSFER_DONE, clock_monotonic_ms() + wait_ms, ret_have,
                         err);
}

void reader_close(struct reader *r)
{
    if (!r)
        return;
    blob_close(r->blob);
    if (r->transfer)
        transfer_leave(r->transfer, &r->place);
    transfer_unref(r->transfer);
    free(r);
}
