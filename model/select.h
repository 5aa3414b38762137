/* Which files of a repository an import takes: include and exclude globs, the pickle rule, and one
 * GGUF quantisation by label. Pure; thread-safe. */
#ifndef WB_MODEL_SELECT_H
#define WB_MODEL_SELECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct select_file {
    const char *path;
    uint64_t size;
    bool selected; /* result */
};

struct select_policy {
    const char *const *include; /* globs (fnmatch, '*' crosses '/'); n 0 = everything */
    size_t n_include;
    const char *const *exclude;
    size_t n_exclude;
    bool allow_pickle;
};

#define QUANT_LABEL_MAX 32 /* bytes of a label, with its NUL */
#define QUANT_UD "UD-"     /* before a label: unsloth's "dynamic" quantisations */

/* True when the label is one that GGUF files are named by ("Q4_K_M", "iq2_xxs", "bf16",
 * "UD-Q4_K_XL" ...; any case; FP16 and FP32 mean F16 and F32). Writes the canonical upper-case
 * spelling into ret. */
bool quant_label_parse(const char *label, char ret[static QUANT_LABEL_MAX]);
/* The quantisation in a GGUF file's name, or else in its folder's ("Q4_K_M/x-00001-of-00002.gguf"),
 * upper case; false when there is none or it is no .gguf. A label stands between '-', '.', '_' or
 * the name's ends; the longest wins, of two as long the last. */
bool quant_label_of(const char *path, char ret[static QUANT_LABEL_MAX]);

/* Marks the selected files. The policy's globs hold in every case. Hidden files (any path component
 * that starts with '.', so .gitattributes too) are always left out.
 *
 * quant NULL: the whole repository. Unless policy->allow_pickle, pickle files (.bin .pt .pth .ckpt
 * .pkl) and their *.index.json are left out; when there are pickled weights and no safetensors,
 * GGUF or ONNX model is selected beside them, the answer is ERR_DENIED (the text names them and the
 * setting). training_args.bin, optimizer.pt and the like are pickles but no weights: left out, and
 * no reason to refuse.
 *
 * quant given (any case):
 *   - the GGUF files of that label, all of their split parts. When no file has the label, those of
 *     UD-<label> (a publisher's name for the same size);
 *   - one projector (mmproj in the name): of that label, else the only one, else F16, BF16, F32 or
 *     Q8_0, the first there is. Importance matrices never (a name that begins with imatrix, or has
 *     it and no label);
 *   - files that modelpack_kind_of() calls weight.config (config.json, tokenizers, vocabularies,
 *     chat templates, preprocessors) but for shard indexes; *.jinja; LICENSE, LICENCE, COPYING,
 *     COPYRIGHT, NOTICE and USE_POLICY files; README.md, which carries the licence's name.
 * ERR_INVALID: a split set with parts missing, or numbered wrongly. (The whole repository is taken
 * as it is: one half-uploaded set must not hide the others.)
 *
 * ERR_NOT_FOUND: no file of that quant (the text lists the labels that there are), or nothing at
 * all is selected. After a failure the marks mean nothing. */
int select_files(struct select_file *files, size_t n, const struct select_policy *policy,
                 const char *quant, struct error *err);

/* The labels that the GGUF files of the list have (projectors, importance matrices and hidden files
 * do not count), each once, sorted; at most max; returns how many. */
size_t select_quants(const struct select_file *files, size_t n, char (*labels)[QUANT_LABEL_MAX],
                     size_t max);

#endif
