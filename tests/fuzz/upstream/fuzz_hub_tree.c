/* The Hub's JSON: a page of a file list, a repository's info, a list of refs, and the Link header
 * that joins pages. What is accepted must keep its promises. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "upstream/hub_private.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
    if (!holds)
        abort();
}

static void tree(const char *text, size_t len)
{
    struct hub_tree t = {0};
    struct commit_files list = {0};
    struct error err = ERROR_INIT;
    size_t half = len / 2;
    /* as one page, and as two, where the second may be any text */
    if (hub_tree_page(&t, text, len, &err) == 0)
        hub_tree_page(&t, text + half, len - half, &err);
    if (hub_tree_finish(&t, &list, &err) == 0) {
        for (size_t i = 0; i < list.n; i++) {
            const struct commit_file *f = &list.files[i];
            require(hub_path_is_valid(f->path) && is_lower_hex(f->git_oid, 40));
            require(f->has_lfs || f->sha256.alg == DIGEST_NONE);
            require(f->size <= (uint64_t)1 << 53);
            require(i == 0 || strcmp(list.files[i - 1].path, f->path) < 0);
        }
        free(list.files);
        free(list.storage);
    } else {
        require(err.code == ERR_UPSTREAM);
    }
    hub_tree_done(&t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    _cleanup_free_ char *text = malloc(size + 1);
    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    tree(text, size);

    struct hub_revision revision;
    if (hub_parse_revision(text, size, &revision, NULL) == 0)
        require(hub_id_is_valid(revision.id) && is_lower_hex(revision.commit, 40));

    _cleanup_free_ struct hub_ref *refs = NULL;
    size_t n = 0;
    if (hub_parse_refs(text, size, true, &refs, &n, NULL) == 0)
        for (size_t i = 0; i < n; i++)
            require(hub_revision_is_valid(refs[i].name) && is_lower_hex(refs[i].commit, 40));

    _cleanup_free_ char *next = http_link_next(text);
    require(!next || strlen(next) < size);
    return 0;
}
