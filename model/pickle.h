/* What loading a PyTorch file would import, found by walking its pickles' opcodes (Python's
 * Lib/pickletools.py) with a stack and memo of the strings only. Nothing is ever executed or built.
 *
 * Default deny: an import is what its exact (module, name) pair is listed as.
 *     ALLOWED     needed for plain tensors: torch's rebuild functions and storages, OrderedDict,
 *                 numpy's arrays
 *     EXTENDED    common in checkpoints and without effect of its own when loaded
 *     UNKNOWN     anything else; reported as dangerous
 *     DANGEROUS   known to run code, or to open files or connections
 * torch.storage._load_from_bytes loads the file in its argument: it is EXTENDED where all of those
 * files could be walked as well, else UNKNOWN.
 * An opcode that is none, or a file that ends in mid-pickle: `unreadable`, which is never clean;
 * what was found before it counts.
 */
#ifndef WB_MODEL_PICKLE_H
#define WB_MODEL_PICKLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "model/source.h"
#include "model/weights.h"

enum pickle_verdict { /* ordered: the file's is the worst of its imports' */
                      PICKLE_ALLOWED,
                      PICKLE_EXTENDED,
                      PICKLE_UNREADABLE, /* of a file: nothing bad seen, and not all seen */
                      PICKLE_UNKNOWN,
                      PICKLE_DANGEROUS,
};
/* "allowed", "extended", ... */
const char *pickle_verdict_name(enum pickle_verdict v);
enum pickle_verdict pickle_judge(const char *module, const char *name);

struct pickle_import {
    char *module, *name; /* "?" for one that is computed (not two plain strings); a registered
                            extension is "?", "extension N" */
    char *
        member; /* of a zip or tar: the member in which it was first seen; NULL = the file itself */
    uint64_t at; /* byte, in the member unpacked or in the file */
    uint64_t count;
    enum pickle_verdict verdict; /* as judged; UNKNOWN at least when a BUILD changes the import */
    bool called;                 /* a REDUCE, OBJ, INST or NEWOBJ follows in that pickle */
};

/* A tensor as torch._utils._rebuild_tensor_v2's arguments give it, where they are plain. */
struct pickle_tensor {
    char *name;        /* its key in the state dict, "" when it has none */
    const char *type;  /* "F32", "BF16", ...: the storage's, in safetensors' names */
    uint64_t elements; /* product of the size */
    uint64_t bytes;
    uint64_t dims[8];
    size_t n_dims;
    char *storage;           /* its key: the member data/<key>; @<byte>/<key> of a file in bytes */
    uint64_t storage_offset; /* in elements */
    bool alias; /* shares elements of the storage with one before it: not in the totals */
};

enum pickle_container { PICKLE_RAW, PICKLE_ZIP, PICKLE_LEGACY, PICKLE_TAR };

struct pickle_report {
    enum pickle_container container;
    enum pickle_verdict verdict;
    bool torchscript; /* has code/ members: code runs by design */
    bool broken;      /* a walk ended at something that is no pickle, or not all could be seen */
    char broken_why[256];
    char warning[256]; /* odd, and no reason to take it for unreadable; empty = nothing */
    uint64_t pickles;  /* walked */
    uint64_t bytes_read;
    struct pickle_import *imports; /* by verdict (worst first), module, name */
    size_t n_imports;
    struct pickle_tensor *tensors; /* by name */
    size_t n_tensors;
    bool tensors_known; /* every _rebuild_tensor call was understood: the totals are the file's */
    struct weights weights; /* the sums over them, each element of a storage once; header_bytes:
                               all that is no byte of theirs */
};

/* Any of the containers, and zip files that lie in one of them; of a big file only the pickles and
 * the beginnings of members are read. ERR_INVALID: a safetensors or GGUF file, or nothing that
 * holds a pickle. ERR_TOO_LARGE: a pickle over 256 MiB, all of them over 512 MiB, more than a
 * million imports or tensors. pickle_report_done() in any case. */
int pickle_inspect(const struct byte_source *s, struct pickle_report *ret, struct error *err);
void pickle_report_done(struct pickle_report *r);

#endif
