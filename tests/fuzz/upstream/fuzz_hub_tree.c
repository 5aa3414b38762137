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
    _cleanup_strbuf_ struct strbuf folders = STRBUF_INIT;
    struct hub_tree t = {.folders = &folders};
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
    for (size_t at = 0; at < folders.len;) {
        const char *path = folders.data + at, *oid = path + strlen(path) + 1;
        require(hub_path_is_valid(path) && is_lower_hex(oid, 40));
        at += strlen(path) + 42;
        require(at <= folders.len);
    }
    hub_tree_done(&t);
}

/* Two pages joined are an array again. */
static void join(const char *text, size_t len)
{
    const char *inside;
    size_t n;
    struct error err = ERROR_INIT;
    if (hub_array_inside(text, len, &inside, &n, &err) < 0) {
        require(err.code == ERR_UPSTREAM || err.code == ERR_NOMEM);
        return;
    }
    require(inside >= text && n < len && inside + n < text + len);
    _cleanup_strbuf_ struct strbuf whole = STRBUF_INIT;
    _cleanup_json_ struct json *root = NULL;
    strbuf_putc(&whole, '[');
    for (unsigned i = 0; i < 2; i++) {
        if (n)
            json_put_separator(&whole);
        strbuf_put(&whole, inside, n);
    }
    strbuf_putc(&whole, ']');
    require(json_parse(strbuf_str(&whole), whole.len, &root, NULL) == 0 && json_is_array(root));
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
    for (unsigned kind = HUB_MODEL; kind <= HUB_SPACE; kind++)
        if (hub_parse_revision((enum hub_kind)kind, text, size, &revision, NULL) == 0)
            require(hub_id_is_valid(revision.id) && is_lower_hex(revision.commit, 40) &&
                    hub_id_kind(revision.id, NULL) == kind);
    join(text, size);

    _cleanup_free_ struct hub_ref *refs = NULL;
    size_t n = 0;
    if (hub_parse_refs(text, size, true, &refs, &n, NULL) == 0)
        for (size_t i = 0; i < n; i++)
            require(hub_revision_is_valid(refs[i].name) && is_lower_hex(refs[i].commit, 40));

    _cleanup_free_ char *next = http_link_next(text);
    require(!next || strlen(next) < size);
    return 0;
}
