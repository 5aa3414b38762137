/* Upload sessions in memory, with the rules of storage/upload.h that a client can tell. Included by
 * fakes.h. */
#ifndef WB_TESTS_SERVER_FAKES_UPLOADS_H
#define WB_TESTS_SERVER_FAKES_UPLOADS_H

#define FAKE_SESSIONS 8u

struct fake_session {
    char id[UPLOAD_ID_LEN + 1]; /* empty: free */
    char repository[REPOSITORY_MAX + 1];
    enum digest_alg alg;
    struct strbuf data;
    uint64_t acked;
    unsigned holder; /* counts up: an older hold has lost it */
};

struct upload {
    struct fake_session *session;
    unsigned hold;
    struct error error;
};

static pthread_mutex_t fake_upload_lock = PTHREAD_MUTEX_INITIALIZER; /* guards: all below */
static struct fake_session fake_sessions[FAKE_SESSIONS];
static unsigned fake_sessions_made;
static struct digest fake_stored[16]; /* what was committed, by whatever repository */
static unsigned fake_n_stored;
static struct error fake_write_error;          /* what upload_write says */
static uint64_t fake_write_limit = UINT64_MAX; /* ... from this many bytes of a session on */
static uint64_t fake_expected;                 /* the last upload_expect */
static size_t fake_write_max;                  /* the longest piece that was written at once */
static const char *fake_mount_from = "";       /* has fake_held; the only one that does */
static char fake_looked_at[1024];              /* repositories that a mount was tried from */
static atomic_uint fake_expire_calls;
static atomic_uint fake_uploads_held; /* struct uploads that are not closed */

static void fake_uploads_done(void)
{
    for (unsigned i = 0; i < FAKE_SESSIONS; i++)
        strbuf_done(&fake_sessions[i].data);
}

static struct fake_session *fake_session(const char *repository, const char *id)
{
    for (unsigned i = 0; i < FAKE_SESSIONS; i++)
        if (*id && strcmp(fake_sessions[i].id, id) == 0 &&
            strcmp(fake_sessions[i].repository, repository) == 0)
            return &fake_sessions[i];
    return NULL;
}

__attribute__((unused)) static bool fake_is_stored(const struct digest *d)
{
    bool found = false;
    pthread_mutex_lock(&fake_upload_lock);
    for (unsigned i = 0; i < fake_n_stored; i++)
        found = found || digest_equal(&fake_stored[i], d);
    pthread_mutex_unlock(&fake_upload_lock);
    return found;
}

/* How many sessions are open; *acked and *size of the only one. */
__attribute__((unused)) static unsigned fake_open_sessions(uint64_t *acked, uint64_t *size)
{
    unsigned n = 0;
    pthread_mutex_lock(&fake_upload_lock);
    for (unsigned i = 0; i < FAKE_SESSIONS; i++)
        if (*fake_sessions[i].id) {
            n++;
            *acked = fake_sessions[i].acked;
            *size = fake_sessions[i].data.len;
        }
    pthread_mutex_unlock(&fake_upload_lock);
    return n;
}

int upload_begin(struct store *s, const char *repository, enum digest_alg alg,
                 char ret_id[static UPLOAD_ID_LEN + 1], struct error *err)
{
    int r = -1;
    (void)s;
    pthread_mutex_lock(&fake_upload_lock);
    for (unsigned i = 0; r < 0 && i < FAKE_SESSIONS; i++) {
        struct fake_session *n = &fake_sessions[i];
        if (*n->id)
            continue;
        snprintf(n->id, sizeof(n->id), "%032x", ++fake_sessions_made);
        snprintf(n->repository, sizeof(n->repository), "%s", repository);
        n->alg = alg;
        n->acked = 0;
        strbuf_reset(&n->data);
        memcpy(ret_id, n->id, sizeof(n->id));
        r = 0;
    }
    pthread_mutex_unlock(&fake_upload_lock);
    return r < 0 ? err_set(err, ERR_BUSY, "all of limits.uploads are open") : 0;
}

int upload_status(struct store *s, const char *repository, const char *id, uint64_t *ret_offset,
                  struct error *err)
{
    (void)s;
    (void)err;
    pthread_mutex_lock(&fake_upload_lock);
    struct fake_session *n = fake_session(repository, id);
    if (n)
        *ret_offset = n->acked = n->data.len;
    pthread_mutex_unlock(&fake_upload_lock);
    return n != NULL;
}

int upload_open(struct store *s, const char *repository, const char *id, struct upload **ret,
                struct error *err)
{
    (void)s;
    pthread_mutex_lock(&fake_upload_lock);
    struct fake_session *n = fake_session(repository, id);
    struct upload *u = n ? calloc(1, sizeof(*u)) : NULL;
    if (u) {
        strbuf_truncate(&n->data, n->acked);
        u->session = n;
        u->hold = ++n->holder;
        atomic_fetch_add(&fake_uploads_held, 1);
        *ret = u;
    }
    pthread_mutex_unlock(&fake_upload_lock);
    return u ? 1 : n ? err_set(err, ERR_NOMEM, "out of memory") : 0;
}

uint64_t upload_offset(const struct upload *u)
{
    return u->session->acked;
}

int upload_expect(struct upload *u, uint64_t bytes, struct error *err)
{
    (void)u;
    fake_expected = bytes;
    return store_has_room(NULL, bytes, err);
}

static int fake_holds(const struct upload *u, struct error *err)
{
    if (u->hold == u->session->holder)
        return 0;
    return err_set(err, ERR_CONFLICT, "another request has taken this upload over");
}

int upload_write(struct upload *u, const void *data, size_t len, struct error *err)
{
    struct fake_session *n = u->session;
    pthread_mutex_lock(&fake_upload_lock);
    int r = fake_holds(u, err);
    if (len > fake_write_max)
        fake_write_max = len;
    if (r == 0 && n->data.len + len > fake_write_limit) {
        *err = fake_write_error;
        r = -1;
    }
    if (r == 0)
        strbuf_put(&n->data, data, len);
    pthread_mutex_unlock(&fake_upload_lock);
    return r;
}

int upload_ack(struct upload *u, uint64_t *ret_offset, struct error *err)
{
    pthread_mutex_lock(&fake_upload_lock);
    int r = fake_holds(u, err);
    if (r == 0)
        *ret_offset = u->session->acked = u->session->data.len;
    pthread_mutex_unlock(&fake_upload_lock);
    return r;
}

int upload_commit(struct upload *u, const struct digest *d, struct error *err)
{
    struct fake_session *n = u->session;
    struct digest is;
    pthread_mutex_lock(&fake_upload_lock);
    int r = fake_holds(u, err);
    if (r == 0)
        r = digest_of(d->alg, strbuf_str(&n->data), n->data.len, &is, err);
    if (r == 0 && !digest_equal(&is, d)) {
        r = err_set(err, ERR_DIGEST_MISMATCH, "the bytes hash to something else");
        strbuf_truncate(&n->data, n->acked);
    }
    if (r == 0) {
        n->id[0] = '\0';
        if (fake_n_stored < ARRAY_LEN(fake_stored))
            fake_stored[fake_n_stored++] = *d;
    }
    pthread_mutex_unlock(&fake_upload_lock);
    return r;
}

void upload_close(struct upload *u)
{
    if (u)
        atomic_fetch_sub(&fake_uploads_held, 1);
    free(u);
}

int upload_cancel(struct store *s, const char *repository, const char *id, struct error *err)
{
    (void)s;
    (void)err;
    pthread_mutex_lock(&fake_upload_lock);
    struct fake_session *n = fake_session(repository, id);
    if (n) {
        n->id[0] = '\0';
        n->holder++;
    }
    pthread_mutex_unlock(&fake_upload_lock);
    return n != NULL;
}

int uploads_expire(struct store *s, uint64_t idle_s, uint64_t *ret_n, uint64_t *ret_bytes,
                   struct error *err)
{
    (void)s, (void)idle_s, (void)err;
    atomic_fetch_add(&fake_expire_calls, 1);
    *ret_n = *ret_bytes = 0;
    return 0;
}

int store_blob_mount(struct store *s, const char *repository, const struct digest *d,
                     const char *from, struct error *err)
{
    (void)s, (void)repository, (void)err;
    pthread_mutex_lock(&fake_upload_lock);
    size_t used = strlen(fake_looked_at);
    snprintf(fake_looked_at + used, sizeof(fake_looked_at) - used, "%s ", from);
    pthread_mutex_unlock(&fake_upload_lock);
    return strcmp(from, fake_mount_from) == 0 && digest_equal(d, &fake_held.digest);
}

int store_blob_repositories(struct store *s, const struct digest *d, const char *last, size_t limit,
                            struct name_list *ret, struct error *err)
{
    (void)s, (void)err;
    if (!digest_equal(d, &fake_held.digest)) {
        *ret = (struct name_list){0};
        return 0;
    }
    return fake_list(last, limit < 2 ? limit : 2, ret);
}

#endif
