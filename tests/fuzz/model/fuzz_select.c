/* A list of paths, one a line; the first line is the quantisation ("" = whole repository). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "model/modelpack.h"
#include "model/select.h"

#define FILES_MAX 256

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "%s\n", what);
        abort();
    }
}

static void check_labels(const struct select_file *files, size_t n)
{
    static char labels[FILES_MAX][32];
    size_t count = select_quants(files, n, labels, FILES_MAX);
    for (size_t i = 0; i < count; i++) {
        char again[32];
        require(quant_label_parse(labels[i], again) && strcmp(again, labels[i]) == 0,
                "a label that is none");
        require(i == 0 || strcmp(labels[i - 1], labels[i]) < 0, "labels out of order");
    }
}

static void check(struct select_file *files, size_t n, const char *quant, bool allow_pickle)
{
    static const char *const exclude[] = {"*secret*"};
    const struct select_policy policy = {
        .exclude = exclude, .n_exclude = 1, .allow_pickle = allow_pickle};
    struct error err = ERROR_INIT;
    size_t selected = 0;
    int rc = select_files(files, n, &policy, quant, &err);
    require(rc == 0 || err.code == ERR_DENIED || err.code == ERR_NOT_FOUND ||
                err.code == ERR_INVALID,
            err.text);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        if (!files[i].selected)
            continue;
        selected++;
        require(files[i].path[0] != '.' && !strstr(files[i].path, "secret"), "against the policy");
        require(allow_pickle || weights_format_of(files[i].path) != WEIGHTS_PICKLE, "a pickle");
        (void)modelpack_kind_of(files[i].path, files[i].size);
    }
    require(rc < 0 || selected, "nothing is selected");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct select_file files[FILES_MAX];
    size_t n = 0;
    _cleanup_free_ char *text = calloc(1, size + 1);
    if (!text)
        abort();
    if (size)
        memcpy(text, data, size);
    char *rest = text;
    const char *quant = strsep(&rest, "\n");
    for (char *path; n < FILES_MAX && (path = strsep(&rest, "\n"));)
        files[n++] = (struct select_file){.path = path, .size = 1u << 28};
    check_labels(files, n);
    for (int allow = 0; allow < 2; allow++) {
        check(files, n, NULL, allow);
        check(files, n, quant, allow);
    }
    return 0;
}
