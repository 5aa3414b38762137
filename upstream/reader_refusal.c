/* What clients of a blob are told that they do not get. */
#include <inttypes.h>

#include "upstream/reader_private.h"

int reader_no_blob(struct upstreams *u, const char *repository, const struct digest *d,
                   struct error *err)
{
    char text[DIGEST_TEXT_MAX];
    return err_set(err, ERR_NOT_FOUND, "%s has no blob %s%s", repository, digest_format(d, text),
                   config_upstream_of(u->config, repository)
                       ? " that is known here; if the upstream has it, pull the manifest first"
                       : ": it was never pushed or mounted there, or was deleted");
}

int reader_bytes_gone(const char *repository, const struct digest *d, struct error *err)
{
    char text[DIGEST_TEXT_MAX];
    return err_set(
        err, ERR_NOT_FOUND,
        "the file of blob %s is gone from the data directory; push it to %s again, or, if that "
        "is an imported model, pull its manifest by tag",
        digest_format(d, text), repository);
}

int reader_not_checked(const char *repository, const struct digest *d, struct error *err)
{
    char text[DIGEST_TEXT_MAX];
    err_set(err, ERR_BUSY,
            "%s: another download of %s, for which there was no room, has not been checked to its "
            "end yet, and what it gave out must not be completed before: try again, or download "
            "the file from byte 0",
            repository, digest_format(d, text));
    if (err)
        err->retry_after = 10;
    return -1;
}

int reader_suspect(const char *repository, const struct digest *d, uint64_t left_s,
                   struct error *err)
{
    char text[DIGEST_TEXT_MAX];
    return err_set(
        err, ERR_DIGEST_MISMATCH,
        "%s: bytes of %s that were sent out a short while ago were wrong, or were lost here "
        "before they could be checked, or could not be stored and checked; what was received "
        "before must not be resumed: delete the partial file and download it from byte 0 "
        "(ranges are refused for another %" PRIu64 " s)",
        repository, digest_format(d, text), left_s);
}
