/* One client being sent a blob: from the file when it is held, from the running transfer when not.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "upstream/caller.h"
#include "upstream/import.h"
#include "upstream/loop.h"
#include "upstream/reader_private.h"

/* A transfer may have to wait for a place; a client is told to come again rather than left hanging.
 */
#define START_WAIT_MS 60000
/* Clients of a Hub give up, for good, when an answer has not begun 10 s after they asked; one that
 * has begun and pauses they take up again. */
#define START_SOON_MS 8000
/* So that what cannot be connected to has failed by then. */
#define CONNECT_SOON_MS 7500
#define HALT_STEP_MS 500
#define LOOKS 4u /* at what is known of a blob, while that changes */

struct reader {
    struct upstreams *upstreams;
    char repository[REPOSITORY_MAX + 1];
    struct digest digest;
    enum reader_kind kind;
    uint64_t size;
    struct blob *blob;         /* held */
    struct transfer *transfer; /* or under way */
    struct small *small;       /* or that of a git file */
    struct link given;         /* instead of what the store has for the repository */
    bool has_given;
    char *token; /* the caller's, where it is forwarded; NULL = none */
    struct transfer_place place;
    uint64_t first, end;     /* what will be read */
    uint64_t asked_end;      /* as it was asked for */
    bool own;                /* the transfer asks for the bytes in the link's own repository */
    bool alone;              /* joins no other any more */
    bool direct;             /* the transfer is of the part alone */
    bool no_direct;          /* that can not be had */
    bool has_end;            /* it may be given the end of the file */
    bool has_part;           /* it may be given what nobody checks */
    bool begun;              /* its client has got some of it */
    const atomic_bool *halt; /* NULL = nobody can call it off */
};

static bool is_part(const struct reader *r)
{
    return r->first > 0 || r->end < r->size;
}

/* It can not complete a file. */
static bool is_short(const struct reader *r)
{
    return is_part(r) && r->end + TRANSFER_WITHHELD <= r->size;
}

/* ---- opening ------------------------------------------------------------------------------- */

/* Wrong bytes went out for this digest a short while ago, or bytes that a crash took before they
 * were checked: a client that holds some of them must not be given a right end to a wrong
 * beginning.
 */
static int refuse_suspect(const struct reader *r, struct error *err)
{
    if (!r->first)
        return 0;
    bool passing;
    uint64_t left = store_mismatch_left(r->upstreams->store, &r->digest, r->repository),
             passed = transfers_passed_left(r->upstreams->transfers, &r->digest, &passing);
    left = left > passed ? left : passed;
    if (!left)
        return passing && r->blob && !is_short(r)
                   ? reader_not_checked(r->repository, &r->digest, err)
                   : 0;
    return reader_suspect(r->repository, &r->digest, left, err);
}

/* A claimed link is no way to what came, or comes, for another repository. */
static int check_claim(struct upstreams *u, const char *repository, const struct digest *d,
                       struct error *err)
{
    struct mirror *m = upstreams_mirror_of(u, repository);
    int proved = m ? mirror_prove(m, repository, d, err) : 1;
    return proved == 0 ? reader_no_blob(u, repository, d, err) : proved < 0 ? -1 : 0;
}

static bool feeds(const struct reader *r)
{
    struct mirror *m = upstreams_mirror_of(r->upstreams, r->repository);
    return m && mirror_feeds(m, r->repository, r->transfer);
}

static void leave(struct reader *r)
{
    if (r->transfer)
        transfer_leave(r->transfer, &r->place);
    transfer_unref(TAKE_PTR(r->transfer));
    r->direct = r->has_part = false;
}

static int not_begun(struct upstreams *u, struct error *err)
{
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

/* Its bytes are not to be stored, and can be had without those before them. */
static bool goes_direct(const struct reader *r, struct error *ret_why)
{
    struct upstreams *u = r->upstreams;
    if (!is_short(r) || r->no_direct)
        return false;
    if (r->transfer && transfer_is_kept(r->transfer, ret_why) == 0)
        return false;
    if (!r->transfer) {
        uint64_t missing = store_missing(u->store, &r->digest, r->size);
        if (store_has_room(u->store, missing, ret_why) == 0)
            return false;
        err_wrap(ret_why, "not stored, only passed through");
    }
    return !transfer_has_end(u->transfers, &r->digest, r->repository);
}

static int start_transfer(struct reader *r, struct link *link, const struct error *why_direct,
                          struct error *err)
{
    struct upstreams *u = r->upstreams;
    struct transfer_source source;
    struct transfer_part part = {.first = r->first, .end = r->end, .why = why_direct};
    uint64_t size = link->size;
    uint64_t connect_by_ms = r->has_given ? caller_deadline(CONNECT_SOON_MS) : 0;
    if (reader_source(u, link, &r->digest, r->token, connect_by_ms, &source, err) < 0)
        return -1;
    source.alone = r->alone;
    r->kind = READER_FILL;
    r->direct = why_direct != NULL;
    return why_direct ? transfer_begin_part(u->transfers, &r->digest, size, &source, &part,
                                            &r->transfer, err)
                      : transfer_join(u->transfers, &r->digest, size, &source, &r->transfer, err);
}

/* Finds the transfer of a link, or starts it. */
static int find_transfer(struct reader *r, struct link *link, struct error *err)
{
    struct upstreams *u = r->upstreams;
    struct error why = ERROR_INIT;
    char upstream[REPOSITORY_MAX + 1], repo_id[REPOSITORY_MAX + 1];
    snprintf(upstream, sizeof(upstream), "%s", link->origin.upstream);
    snprintf(repo_id, sizeof(repo_id), "%s", link->origin.repo_id);
    const struct transfer_source source = {
        .upstream = upstream, .repository = repo_id, .alone = r->alone};
    bool claimed = link->claimed;
    if (loop_check(upstream, err) < 0)
        return -1;
    bool running = transfer_find(u->transfers, &r->digest, link->size, &source, &r->transfer) > 0;
    bool direct = goes_direct(r, &why);
    if (running && direct) {
        leave(r);
        running = false;
    }
    r->kind = READER_JOIN;
    if (!running && start_transfer(r, link, direct ? &why : NULL, err) < 0)
        return -1;
    r->own = transfer_is_of(r->transfer, upstream, repo_id);
    if (running && r->own)
        transfer_add_caller(r->transfer, r->token);
    return claimed && !feeds(r) ? check_claim(u, r->repository, &r->digest, err) : 0;
}

/* As transfer_wait(), for as long as a client waits for its answer. */
static int wait_for_state(const struct reader *r, enum transfer_state state, struct error *err)
{
    uint64_t have, end_ms = r->has_given ? caller_deadline(START_SOON_MS)
                                         : clock_monotonic_ms() + START_WAIT_MS;
    for (;;) {
        uint64_t now = clock_monotonic_ms(), until_ms = end_ms;
        if (r->halt && atomic_load(r->halt))
            return err_set(err, ERR_CANCELLED, "nobody waits for it any more");
        if (r->halt && until_ms > now + HALT_STEP_MS)
            until_ms = now + HALT_STEP_MS;
        int rc = transfer_wait(r->transfer, UINT64_MAX, state, until_ms, &have, err);
        if (rc || clock_monotonic_ms() >= end_ms)
            return rc;
    }
}

/* A download from the link's own repository is under way. An answer to it proves the claim; what an
 * earlier one has left, perhaps from another repository, does not. */
static int prove(struct reader *r, struct error *err)
{
    if (!transfer_is_answered(r->transfer))
        return check_claim(r->upstreams, r->repository, &r->digest, err);
    mirror_proved(upstreams_mirror_of(r->upstreams, r->repository), r->repository, &r->digest);
    return 0;
}

/* A file that came before there was a policy against it. */
static int check_file(struct upstreams *u, const char *repository, const struct link *l,
                      struct error *err)
{
    const char *path = l->has_origin ? l->origin.path : "";
    return *path ? policy_check_given(u->config, repository, l->origin.upstream, l->origin.repo_id,
                                      path, l->size, err)
                 : 0;
}

/* As store_link_get(). */
static int find_link(struct upstreams *u, const char *repository, const struct digest *d,
                     struct link *ret, struct error *err)
{
    struct mirror *m = upstreams_mirror_of(u, repository);
    if (m)
        return mirror_link(m, repository, d, ret, err);
    int rc = store_link_get(u->store, repository, d, ret, err);
    if (rc > 0 && check_file(u, repository, ret, err) < 0) {
        link_done(ret);
        return -1;
    }
    return rc;
}

static int link_of(const struct reader *r, struct link *ret, struct error *err)
{
    if (!r->has_given)
        return find_link(r->upstreams, r->repository, &r->digest, ret, err);
    return link_of_origin(&r->given.origin, r->given.size, ret, err) < 0 ? -1 : 1;
}

/* The disk has become full: what was to be waited for comes by itself. */
static int turn_direct(struct reader *r, uint64_t offset, const struct error *why,
                       struct error *err)
{
    struct link link = {0};
    int rc = link_of(r, &link, err);
    if (rc == 0)
        rc = reader_no_blob(r->upstreams, r->repository, &r->digest, err);
    if (rc < 0)
        return -1;
    leave(r);
    r->first = offset;
    r->own = true;
    rc = start_transfer(r, &link, why, err);
    if (rc == 0)
        transfer_move(r->transfer, &r->place, offset);
    link_done(&link);
    return rc;
}

/* Until the upstream has answered, so that a failure can be a status. */
static int join(struct reader *r, struct link *link, struct error *err)
{
    struct error why = ERROR_INIT;
    bool claimed = link->claimed;
    if (find_transfer(r, link, err) < 0)
        return -1;
    transfer_move(r->transfer, &r->place, r->first);
    if (is_part(r))
        transfer_hurry(r->transfer, r->first, r->end);
    int rc = wait_for_state(r, TRANSFER_HEADERS, err);
    if (rc > 0 && !r->direct && goes_direct(r, &why)) {
        rc = turn_direct(r, r->first, &why, err);
        rc = rc < 0 ? -1 : wait_for_state(r, TRANSFER_HEADERS, err);
    }
    if (rc == 0)
        return r->has_given ? transfer_begin(r->transfer, err) : not_begun(r->upstreams, err);
    if (rc > 0 && claimed && feeds(r))
        rc = prove(r, err);
    return rc < 0 ? -1 : 0;
}

/* ---- when the upstream says another size ---- */

/* 1: bytes of this size are the blob, 0: there was no time to see, -1. */
static int fetch_as(struct reader *r, uint64_t size, struct error *err)
{
    struct link link = {0};
    int rc = link_of(r, &link, err);
    if (rc == 0)
        rc = reader_no_blob(r->upstreams, r->repository, &r->digest, err);
    r->no_direct = true; /* all of its bytes are wanted */
    link.size = size;
    if (rc > 0 && !link.held)
        rc = find_transfer(r, &link, err) < 0 ? -1 : wait_for_state(r, TRANSFER_DONE, err);
    link_done(&link);
    return rc;
}

/* A manifest says one size, the upstream another. Only the bytes can tell, and no client gets any
 * before they have. 1 when they have, -1. */
static int try_size(struct reader *r, uint64_t size, struct error *err)
{
    struct mirror *m = upstreams_mirror_of(r->upstreams, r->repository);
    struct error why = ERROR_INIT;
    uint64_t told = r->size;
    leave(r);
    int rc = fetch_as(r, size, &why);
    leave(r);
    if (rc > 0)
        return mirror_resize(m, r->repository, &r->digest, size, err) < 0 ? -1 : 1;
    if (rc == 0) {
        err_set(&why, ERR_BUSY, "it is being fetched, to see which of the two is right: try again");
        why.retry_after = 10;
    }
    err_wrap(&why,
             "a manifest of %s says that this blob has %" PRIu64 " bytes, the upstream %" PRIu64,
             r->repository, told, size);
    if (why.code == ERR_DIGEST_MISMATCH)
        mirror_size_refuted(m, r->repository, &r->digest, &why);
    if (err)
        *err = why;
    return -1;
}

/* Whether the digest can be one of so many bytes at all. */
static bool is_possible(const struct digest *d, uint64_t size)
{
    struct digest empty;
    return size || (digest_of(d->alg, "", 0, &empty, NULL) == 0 && digest_equal(&empty, d));
}

/* The upstream's answer was about another size. */
static bool is_contradicted(const struct reader *r, uint64_t *ret_said)
{
    *ret_said = LINK_SIZE_UNKNOWN;
    return !is_possible(&r->digest, r->size) ||
           (r->transfer && transfer_is_contradicted(r->transfer, ret_said));
}

/* After a failure: 1 when there is more known now, so that another attempt may do better. */
static int settle_size(struct reader *r, bool named, struct error *err)
{
    struct mirror *m = upstreams_mirror_of(r->upstreams, r->repository);
    uint64_t said, told, held;
    if (store_blob_stat(r->upstreams->store, &r->digest, &held, NULL) > 0)
        return 1; /* it came meanwhile, for somebody else */
    if (!m || !is_contradicted(r, &said))
        return -1;
    struct error why = ERROR_INIT;
    if (mirror_ask_size(m, r->repository, &r->digest, &told, &why) <= 0) {
        if (why.code == ERR_DIGEST_MISMATCH && err)
            *err = why;
        return -1;
    }
    /* A single answer of another size is no reason to doubt. */
    if (told == r->size || !is_possible(&r->digest, told) ||
        (told != said && said != LINK_SIZE_UNKNOWN))
        return -1;
    if (named)
        return try_size(r, told, err);
    leave(r);
    return mirror_resize(m, r->repository, &r->digest, told, err) < 0 ? -1 : 1;
}

/* ---- opening ---- */

/* What failed elsewhere says nothing of our own link's repository. */
static bool is_inherited(const struct reader *r, const struct error *err)
{
    uint64_t have;
    return r->transfer && !r->own && !r->alone && err->code != ERR_CANCELLED &&
           err->code != ERR_IO && err->code != ERR_NO_SPACE &&
           transfer_wait(r->transfer, UINT64_MAX, TRANSFER_DONE, 0, &have, NULL) < 0;
}

/* 0 opened, 1 look again, -1. */
static int open_held(struct reader *r, const struct link *link, struct error *err)
{
    r->kind = READER_HIT;
    if (link->claimed && check_claim(r->upstreams, r->repository, &r->digest, err) < 0)
        return -1;
    if (blob_size(r->blob) == r->size)
        return 0;
    blob_close(TAKE_PTR(r->blob)); /* it has come this moment, and knows its size better */
    return 1;
}

static int open_cold(struct reader *r, struct link *link, struct error *err)
{
    bool named = link->named;
    struct error why = ERROR_INIT;
    if (!is_possible(&r->digest, r->size))
        err_set(&why, ERR_UPSTREAM, "this blob is said to be empty, and can not be");
    else if (join(r, link, &why) == 0)
        return 0;
    if (is_inherited(r, &why)) {
        leave(r);
        r->alone = true;
        return 1;
    }
    if (r->direct && r->transfer && transfer_has_no_parts(r->transfer)) {
        leave(r);
        r->no_direct = true;
        return 1;
    }
    int rc = settle_size(r, named, &why);
    if (rc < 0 && err)
        *err = why;
    return rc;
}

static int look(struct reader *r, struct error *err)
{
    struct upstreams *u = r->upstreams;
    _cleanup_(link_done) struct link link = {0};
    int found = link_of(r, &link, err);
    if (found <= 0)
        return found < 0 ? -1 : reader_no_blob(u, r->repository, &r->digest, err);
    r->size = link.size;
    r->end = r->asked_end < r->size ? r->asked_end : r->size;
    int held = store_blob_open(u->store, &r->digest, &r->blob, err);
    if (held)
        return held < 0 ? -1 : open_held(r, &link, err);
    return link.has_origin ? open_cold(r, &link, err)
                           : reader_bytes_gone(r->repository, &r->digest, err);
}

static int open_blob(struct reader *r, struct error *err)
{
    for (unsigned looks = 0; looks < LOOKS; looks++) {
        int rc = look(r, err);
        if (rc <= 0)
            return rc < 0 ? -1 : r->direct ? 0 : refuse_suspect(r, err);
    }
    err_set(err, ERR_BUSY, "what is known of this blob's size keeps changing: try again");
    return -1;
}

static bool is_forward(struct upstreams *u, const char *repository)
{
    const struct config_upstream *c = config_upstream_of(u->config, repository);
    return c && c->credentials == CREDENTIALS_FORWARD;
}

/* token: where it is forwarded. */
static int reader_new(struct upstreams *u, const char *repository, const struct digest *d,
                      const char *token, struct reader **ret, struct error *err)
{
    struct reader *r = calloc(1, sizeof(*r));
    if (!r)
        return err_set(err, ERR_NOMEM, "out of memory for a reader");
    r->upstreams = u;
    snprintf(r->repository, sizeof(r->repository), "%s", repository);
    r->digest = *d;
    r->asked_end = UINT64_MAX;
    if (token && is_forward(u, repository) && !(r->token = strdup(token))) {
        free(r);
        return err_set(err, ERR_NOMEM, "out of memory for a reader");
    }
    *ret = r;
    return 0;
}

/* Takes r. */
static int open_new(struct reader *r, struct reader **ret, struct error *err)
{
    if (open_blob(r, err) < 0) {
        reader_close(r);
        return -1;
    }
    *ret = r;
    return 0;
}

int reader_open(struct upstreams *u, const char *repository, const struct digest *d, uint64_t first,
                uint64_t end, struct reader **ret, struct error *err)
{
    struct reader *r = NULL;
    if (reader_new(u, repository, d, caller_token(), &r, err) < 0)
        return -1;
    r->first = first;
    r->asked_end = end;
    return open_new(r, ret, err);
}

int reader_open_until(struct upstreams *u, const char *repository, const struct digest *d,
                      const atomic_bool *halt, struct reader **ret, struct error *err)
{
    struct reader *r = NULL;
    if (reader_new(u, repository, d, caller_token(), &r, err) < 0)
        return -1;
    r->halt = halt;
    return open_new(r, ret, err);
}

/* ---- files of a Hub's commit ---- */

int reader_open_file(struct upstreams *u, const char *repository, const struct digest *d,
                     uint64_t size, const struct origin *origin, const char *token, uint64_t first,
                     uint64_t end, struct reader **ret, struct error *err)
{
    struct reader *r = NULL;
    if (reader_new(u, repository, d, token, &r, err) < 0)
        return -1;
    r->first = first;
    r->asked_end = end;
    if (link_of_origin(origin, size, &r->given, err) < 0) {
        reader_close(r);
        return -1;
    }
    r->has_given = true;
    return open_new(r, ret, err);
}

/* Starts or joins the fetch, and waits for its first bytes a little. */
static int join_small(struct reader *r, const struct config_upstream *c,
                      const struct commit_file *file, struct error *err)
{
    struct upstreams *u = r->upstreams;
    const struct origin *o = &r->given.origin;
    const struct small_source from = {.hub = upstreams_hub(u, c),
                                      .id = o->repo_id,
                                      .commit = o->commit,
                                      .file = file,
                                      .token = r->token,
                                      .answer_by_ms = caller_deadline(START_SOON_MS)};
    bool started;
    if (config_is_offline(u->config, c))
        return err_set(err, ERR_NOT_FOUND,
                       "%.400s is not here, and upstream %s is offline by configuration",
                       file->path, c->prefix);
    if (loop_check(c->prefix, err) < 0 ||
        small_join(u->smalls, &from, &r->small, &started, err) < 0)
        return -1;
    r->kind = started ? READER_FILL : READER_JOIN;
    r->size = r->end = file->size;
    return small_begin(r->small, from.answer_by_ms, err);
}

/* Whether it came before. */
static int find_small(struct upstreams *u, const struct origin *o, const struct commit_file *file,
                      struct digest *ret, struct error *err)
{
    uint64_t size;
    int rc = store_hub_object_get(u->store, o->upstream, o->repo_id, file->git_oid, ret, err);
    if (rc > 0)
        rc = store_blob_stat(u->store, ret, &size, err);
    if (rc > 0 && store_hub_keep(u->store, o->upstream, o->repo_id, o->commit, ret, err) < 0)
        rc = -1;
    return rc;
}

int reader_open_small(struct upstreams *u, const char *repository, const struct origin *origin,
                      const struct commit_file *file, const char *token, struct reader **ret,
                      struct error *err)
{
    struct digest d = {0};
    struct reader *r = NULL;
    int held = find_small(u, origin, file, &d, err);
    if (held < 0)
        return -1;
    if (held > 0)
        return reader_open_file(u, repository, &d, file->size, origin, token, 0, UINT64_MAX, ret,
                                err);
    const struct config_upstream *c = upstreams_named(u, origin->upstream);
    if (!c || !upstreams_hub(u, c))
        return err_set(err, ERR_NOT_FOUND, "no Hub with the prefix \"%s\" is configured",
                       origin->upstream);
    if (reader_new(u, repository, &d, token, &r, err) < 0)
        return -1;
    if (link_of_origin(origin, file->size, &r->given, err) < 0 || join_small(r, c, file, err) < 0) {
        reader_close(r);
        return -1;
    }
    *ret = r;
    return 0;
}

static int check_small(const struct reader *r, uint64_t first, struct error *err)
{
    return first ? small_check_resume(r->small, r->repository, err) : 0;
}

int reader_aim(struct reader *r, uint64_t first, uint64_t end, struct error *err)
{
    if (r->small)
        return check_small(r, first, err);
    r->first = first;
    r->end = end < r->size ? end : r->size;
    if (r->transfer) {
        transfer_move(r->transfer, &r->place, first);
        if (is_part(r))
            transfer_hurry(r->transfer, r->first, r->end);
    }
    return refuse_suspect(r, err);
}

int reader_stat(struct upstreams *u, const char *repository, const struct digest *d,
                uint64_t *ret_size, struct error *err)
{
    struct link link = {0};
    int found = find_link(u, repository, d, &link, err);
    if (found <= 0)
        return found;
    int rc = link.held || link.has_origin ? 1 : reader_bytes_gone(repository, d, err);
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

/* Its download failed elsewhere before the client had got anything: the same answer can begin with
 * a download of its own, which the client does not see. */
static bool begins_again(struct reader *r, const struct error *err)
{
    struct error ignored = ERROR_INIT;
    uint64_t size = r->size;
    if (r->begun || !is_inherited(r, err))
        return false;
    leave(r);
    r->alone = true;
    return open_blob(r, &ignored) == 0 && r->size == size;
}

/* 1 with bytes to read, 0 at the deadline, -1. */
static int wait_for_bytes(struct reader *r, uint64_t offset, uint64_t deadline_ms,
                          struct error *err)
{
    struct error why = ERROR_INIT;
    uint64_t have;
    if (!r->direct && is_short(r) && transfer_is_kept(r->transfer, NULL) < 0 &&
        transfer_wait_part(r->transfer, offset, r->end, 0, &have, NULL) == 0 &&
        goes_direct(r, &why) && turn_direct(r, offset, &why, err) < 0)
        return -1;
    return is_part(r) ? transfer_wait_part(r->transfer, offset, r->end, deadline_ms, &have, err)
                      : transfer_wait(r->transfer, offset, TRANSFER_DONE, deadline_ms, &have, err);
}

/* The end of a file that is not kept is not for who may have bytes of it that nobody hashed; and no
 * end is for who may have some of another download that is not checked yet. */
static int check_end(struct reader *r, uint64_t offset, size_t *len, struct error *err)
{
    uint64_t have, limit = r->size > TRANSFER_WITHHELD ? r->size - TRANSFER_WITHHELD : 0;
    bool passing;
    if (r->has_end || !r->first || offset + *len <= limit)
        return 0;
    if (offset < limit &&
        transfer_wait(r->transfer, UINT64_MAX, TRANSFER_DONE, 0, &have, NULL) == 0) {
        *len = (size_t)(limit - offset); /* its own is not checked yet either */
        return 0;
    }
    transfers_passed_left(r->upstreams->transfers, &r->digest, &passing);
    if (passing)
        return reader_not_checked(r->repository, &r->digest, err);
    if (transfer_is_kept(r->transfer, NULL) == 0)
        return 0;
    int may = transfer_may_end(r->upstreams->transfers, &r->digest, r->repository, err);
    r->has_end = may > 0;
    return may ? may : refuse_suspect(r, err);
}

/* Only when there are bytes: who gets none, as from an upstream that knows no ranges, has nothing
 * that must not be resumed. */
static int check_part(struct reader *r, struct error *err)
{
    if (!r->direct || r->has_part)
        return 0;
    int may = transfer_lend(r->transfer, r->repository, err);
    if (may == 0)
        may = transfer_may_part(r->upstreams->transfers, &r->digest, r->repository, err);
    r->has_part = may > 0;
    return may ? may : reader_not_checked(r->repository, &r->digest, err);
}

static ssize_t read_bytes(struct reader *r, uint64_t offset, void *buf, size_t len,
                          struct error *err)
{
    if (r->transfer && (check_part(r, err) < 0 || check_end(r, offset, &len, err) < 0))
        return -1;
    if (r->transfer && !r->begun && transfer_lend(r->transfer, r->repository, err) < 0)
        return -1;
    ssize_t n = r->blob      ? blob_read(r->blob, offset, buf, len, err)
                : is_part(r) ? transfer_read_part(r->transfer, offset, buf, len, err)
                             : transfer_read(r->transfer, offset, buf, len, err);
    if (n > 0 && r->transfer)
        transfer_move(r->transfer, &r->place, offset + (uint64_t)n);
    r->begun = r->begun || n > 0;
    return n;
}

static ssize_t read_small(struct reader *r, uint64_t offset, void *buf, size_t len,
                          unsigned wait_ms, bool *ret_waiting, struct error *err)
{
    uint64_t have;
    if (!r->begun && check_small(r, offset, err) < 0)
        return -1;
    int rc = small_wait(r->small, offset, clock_monotonic_ms() + wait_ms, &have, err);
    *ret_waiting = rc == 0;
    r->begun = r->begun || rc > 0;
    return rc > 0 ? small_read(r->small, offset, buf, len, err) : rc;
}

ssize_t reader_read(struct reader *r, uint64_t offset, void *buf, size_t len, unsigned wait_ms,
                    bool *ret_waiting, struct error *err)
{
    struct error why = ERROR_INIT;
    *ret_waiting = false;
    if (offset >= r->size || !len)
        return 0;
    if (r->small)
        return read_small(r, offset, buf, len, wait_ms, ret_waiting, err);
    int rc = r->blob ? 1 : wait_for_bytes(r, offset, clock_monotonic_ms() + wait_ms, &why);
    ssize_t n = rc > 0 ? read_bytes(r, offset, buf, len, &why) : rc;
    if (n < 0 && begins_again(r, &why))
        rc = 0, n = 0;
    *ret_waiting = rc == 0;
    if (n < 0 && err)
        *err = why;
    return n;
}

int reader_wait(struct reader *r, uint64_t seen, unsigned wait_ms, uint64_t *ret_have,
                struct error *err)
{
    if (r->blob) {
        *ret_have = r->size;
        return 1;
    }
    uint64_t until_ms = clock_monotonic_ms() + wait_ms;
    if (r->small) {
        int there = small_wait(r->small, seen, until_ms, ret_have, err);
        return there > 0 && *ret_have == r->size ? small_wait_kept(r->small, until_ms, err) : there;
    }
    int rc = transfer_wait(r->transfer, seen, TRANSFER_DONE, until_ms, ret_have, err);
    return rc < 0 ? -1 : transfer_is_kept(r->transfer, err) < 0 ? -1 : rc;
}

void reader_close(struct reader *r)
{
    if (!r)
        return;
    blob_close(r->blob);
    leave(r);
    small_unref(r->small);
    link_done(&r->given);
    if (r->token)
        explicit_bzero(r->token, strlen(r->token));
    free(r->token);
    free(r);
}
