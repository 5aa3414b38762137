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

/* True when the label is one that GGUF files are named by ("Q4_K_M", "iq2_xxs", "bf16",
 * "UD-Q4_K_XL"
 * ...; any case). Writes the canonical upper-case spelling into ret (32 bytes). */
bool quant_label_parse(const char *label, char ret[static 32]);
/* The quantisation in a GGUF file's name or in its folder's ("Q4_K_M/x-00001-of-00002.gguf"), upper
 * case; false when there is none. */
bool quant_label_of(const char *path, char ret[static 32]);

/* Marks the selected files. quant NULL: the whole repository under the policy. quant given: the
 * GGUF files of that label (all of their split parts), and config, tokenizer and licence files.
 * Hidden files (any path component that starts with '.', so .gitattributes too) are always left
 * out. Pickle checkpoints (.bin .pt .pth .ckpt .pkl) are left out when safetensors or GGUF weights
 * are selected too, and kept when policy->allow_pickle. ERR_DENIED: pickles are all the weights
 * there are and the policy does not allow them (the text names them and the setting).
 * ERR_NOT_FOUND: no file of that quant (the text lists the labels that there are), or nothing at
 * all is selected. ERR_INVALID: a split set with parts missing. */
int select_files(struct select_file *files, size_t n, const struct select_policy *policy,
                 const char *quant, struct error *err);

/* The labels that the GGUF files of the list have, each once, sorted; at most max; returns how
 * many. labels[i] are 32-byte strings. */
size_t select_quants(const struct select_file *files, size_t n, char (*labels)[32], size_t max);

#endif
