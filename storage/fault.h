/* Named points at which a test may kill the process, to see what a crash there leaves behind.
 * storage_fault is NULL outside of tests; set it before a store is opened.
 *
 *     put.written  put.synced             bytes written / synced under incoming/
 *     publish.renamed                     the file has its name in blobs/, its folder is not synced
 *     publish.synced                      ... is synced; no row yet
 *     commit.done                         the row is committed, nobody knows yet
 *     upload.created                      a session's file is there, its row not yet
 *     upload.begun                        ... and its row
 *     upload.written                      bytes were appended; not acknowledged
 *     upload.verified                     the digest is right; the row does not know it yet
 *     upload.intent                       ... and knows it, and the bytes are synced
 *     upload.linked                       the blob was held: link and end are committed, the
 *                                         session's file is still there
 *     upload.dropped                      the same of a session that ended without a blob
 *     upload.done                         blob, link and the end of the session are committed
 *     push.rows                           a manifest's rows are written, not yet committed
 *     referrers.rows                      what an upstream told is written, not yet committed
 *     referrers.done                      ... and committed
 *     push.done                           a manifest and its rows are committed, nobody knows yet
 *     recover.files                       a start has settled the files, not yet the rows
 *     gc.doomed  gc.unlinked              rows of dead blobs gone / their files too
 */
#ifndef WB_STORAGE_FAULT_H
#define WB_STORAGE_FAULT_H

extern void (*storage_fault)(const char *point);

/* The file that tells one boot of the machine from another. A test that names another file makes
 * the next opening come after a power cut. */
extern const char *storage_boot_file;

static inline void fault_point(const char *point)
{
    if (storage_fault)
        storage_fault(point);
}

#endif
