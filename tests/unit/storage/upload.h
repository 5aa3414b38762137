/* Steps of an upload, as a client takes them. */
#ifndef WB_TESTS_STORAGE_UPLOAD_H
#define WB_TESTS_STORAGE_UPLOAD_H

#include "helper.h"

#include "storage/fault.h"

#define REPO "team/model"

static UNUSED void begin(struct store *s, char id[static UPLOAD_ID_LEN + 1])
{
    struct error err = ERROR_INIT;
    cr_assert(upload_begin(s, REPO, DIGEST_SHA256, id, &err) == 0, "%s", err.text);
}

static UNUSED uint64_t status_of(struct store *s, const char *id)
{
    struct error err = ERROR_INIT;
    uint64_t offset = 0;
    cr_assert(upload_status(s, REPO, id, &offset, &err) == 1, "%s", err.text);
    return offset;
}

static UNUSED void assert_gone(struct store *s, const char *id)
{
    struct upload *u = NULL;
    uint64_t offset;
    cr_assert(upload_status(s, REPO, id, &offset, NULL) == 0);
    cr_assert(upload_open(s, REPO, id, &u, NULL) == 0);
    cr_assert(upload_cancel(s, REPO, id, NULL) == 0);
}

static UNUSED struct upload *open_upload(struct store *s, const char *id)
{
    struct error err = ERROR_INIT;
    struct upload *u = NULL;
    cr_assert(upload_open(s, REPO, id, &u, &err) == 1, "%s", err.text);
    return u;
}

/* bytes[from, from + len), in pieces */
static UNUSED void write_range(struct upload *u, const unsigned char *bytes, size_t from,
                               size_t len)
{
    struct error err = ERROR_INIT;
    for (size_t at = from, n; at < from + len; at += n) {
        n = from + len - at < 262144 ? from + len - at : 262144;
        cr_assert(upload_write(u, bytes + at, n, &err) == 0, "%s", err.text);
    }
}

static UNUSED void commit(struct upload *u, const struct digest *d)
{
    struct error err = ERROR_INIT;
    cr_assert(upload_commit(u, d, &err) == 0, "%s", err.text);
}

/* One PATCH. */
static UNUSED void send_piece(struct store *s, const char *id, const unsigned char *bytes,
                              size_t from, size_t len)
{
    struct error err = ERROR_INIT;
    uint64_t offset = 0;
    struct upload *u = open_upload(s, id);
    cr_assert(upload_offset(u) == from);
    write_range(u, bytes, from, len);
    cr_assert(upload_ack(u, &offset, &err) == 0, "%s", err.text);
    cr_assert(offset == from + len);
    upload_close(u);
}

static UNUSED struct store_stats stats_of(struct store *s)
{
    struct error err = ERROR_INIT;
    struct store_stats st;
    cr_assert(store_stats(s, &st, &err) == 0, "%s", err.text);
    return st;
}

static UNUSED void assert_linked(struct store *s, const char *repository, const struct digest *d)
{
    struct error err = ERROR_INIT;
    struct link l;
    cr_assert(store_link_get(s, repository, d, &l, &err) == 1, "%s", err.text);
    cr_assert(l.held);
    link_done(&l);
}

/* Adds the text to an open session and commits what is in it then. */
static UNUSED void push_open(struct store *s, const char *id, const char *text)
{
    char whole[200] = "", path[400];
    snprintf(path, sizeof(path), "%s/incoming/%s", data_dir(), id);
    FILE *f = fopen(path, "r");
    cr_assert(f);
    size_t n = fread(whole, 1, 100, f);
    fclose(f);
    snprintf(whole + n, sizeof(whole) - n, "%s", text);
    struct digest d = digest_of_text(whole);
    struct upload *u = open_upload(s, id);
    write_range(u, (const unsigned char *)text, 0, strlen(text));
    commit(u, &d);
    upload_close(u);
}

static UNUSED void push_text(struct store *s, const char *repository, const char *text)
{
    struct error err = ERROR_INIT;
    struct digest d = digest_of_text(text);
    struct upload *u = NULL;
    char id[UPLOAD_ID_LEN + 1];
    cr_assert(upload_begin(s, repository, DIGEST_SHA256, id, &err) == 0, "%s", err.text);
    cr_assert(upload_open(s, repository, id, &u, &err) == 1, "%s", err.text);
    write_range(u, (const unsigned char *)text, 0, strlen(text));
    commit(u, &d);
    upload_close(u);
}

static UNUSED void incoming_path(const char *id, char *buf, size_t size)
{
    snprintf(buf, size, "%s/incoming/%s", data_dir(), id);
}

#endif
