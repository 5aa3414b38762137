/* The parts of pickle.c: bytes, the machine that walks opcodes, tensors, judgement. Internal to
 * model/. */
#ifndef WB_MODEL_PICKLE_PRIVATE_H
#define WB_MODEL_PICKLE_PRIVATE_H

#include "base/strbuf.h"
#include "model/pickle.h"
#include "model/zip.h"

/* ---- bytes in order (pickle_input.c) ---- */

#define PICKLE_READ_MAX (256u << 20)  /* of one input; what is skipped unread does not count */
#define PICKLE_TOTAL_MAX (512u << 20) /* of all of them: members may lie over each other */

struct pickle_input {
    const struct byte_source *s;
    uint64_t from;        /* range: byte of the file that is byte 0 of the input */
    uint64_t next, left;  /* range: bytes of the file that were not read yet */
    struct zip_stream *z; /* not NULL: a packed member */
    unsigned char *buf;
    size_t start, have; /* buf[start..have) is what comes next */
    uint64_t at;        /* byte of the input that buf[start] is */
    uint64_t got;
    uint64_t *total; /* of all inputs; may be NULL */
    size_t chunk;
    bool torn; /* the packed stream broke */
};

int input_open_range(struct pickle_input *in, const struct byte_source *s, uint64_t from,
                     uint64_t size, struct error *err);
int input_open_member(struct pickle_input *in, const struct byte_source *s,
                      const struct zip_member *m, struct error *err);
void input_done(struct pickle_input *in);
#define INPUT_WANT_MAX 65536u
/* 1: n bytes (up to INPUT_WANT_MAX) are at input_bytes(); 0: the input ends before; -1 failed. */
int input_want(struct pickle_input *in, size_t n, struct error *err);
static inline const unsigned char *input_bytes(const struct pickle_input *in)
{
    return in->buf + in->start;
}
static inline void input_take(struct pickle_input *in, size_t n) /* of those that were wanted */
{
    in->start += n;
    in->at += n;
}
/* 1: passed n bytes; 0: the input ends before; -1 failed. In a range nothing is read for it. */
int input_skip(struct pickle_input *in, uint64_t n, struct error *err);

/* ---- values, as far as they matter here ---- */

enum value_kind {
    VALUE_OTHER, /* anything that does not matter here */
    VALUE_MARK,
    VALUE_STRING,  /* n: byte of the text, size: its length */
    VALUE_INT,     /* n: as int64_t */
    VALUE_TUPLE,   /* n: first of the items, size: how many */
    VALUE_IMPORT,  /* n: of scan->imports */
    VALUE_STORAGE, /* n: of scan->storages */
    VALUE_TENSOR,  /* n: of report->tensors */
    VALUE_BYTES,   /* n: byte of the input, size: how many */
    VALUE_MAGIC,   /* the number that legacy torch files start with */
};

struct value {
    uint32_t kind, size;
    uint64_t n;
};

#define OTHER ((struct value){VALUE_OTHER, 0, 0})

/* ---- the whole file ---- */

#define PICKLE_IMPORTS_MAX 1000000u
#define PICKLE_TENSORS_MAX 1000000u
#define PICKLE_TEXT_MAX (64u << 20) /* of the names of imports, tensors and storages */

struct pickle_storage {
    char *key;
    const char *type; /* safetensors' name; "" = unknown */
    unsigned size;    /* bytes of an element; 0 = unknown */
    uint64_t elements;
    bool odd; /* named with two types or sizes */
    bool checked;
};

struct pickle_scan {
    struct byte_source source; /* counts */
    const struct byte_source *file;
    const struct byte_source *current; /* source, or an archive within it */
    unsigned depth;                    /* of archives within archives */
    struct pickle_report *report;
    void *import_tree, *storage_tree; /* tsearch() */
    struct pickle_import **imports;   /* in the order of their first use; owned until reported */
    size_t n_imports, cap_imports;
    struct pickle_storage **storages;
    size_t n_storages, cap_storages;
    size_t cap_tensors;
    uint64_t walked; /* bytes of all inputs */
    /* torch.storage._load_from_bytes loads the file that it is given: how often it was at hand, and
     * how many of those were calls with bytes that were looked into. */
    uint64_t loader_uses, loader_looks;
    bool loader_changed; /* by a BUILD */
    char key_prefix[32]; /* keeps the storages of such files apart */
    struct value result; /* what the (main) pickle that was walked last gave: a storage or tensor */
    size_t text;         /* bytes of names so far */
    const char *member;  /* being walked; NULL = the file itself */
};

/* torch.storage._load_from_bytes */
bool is_loader(const struct pickle_import *i);
/* The import, made when new. *ret_index: in scan->imports. */
int scan_import(struct pickle_scan *scan, const char *module, const char *name, uint64_t at,
                uint32_t *ret_index, struct error *err);
/* NULL when there is none of that key. */
struct pickle_storage *scan_find_storage(const struct pickle_scan *scan, const char *key);
int scan_storage(struct pickle_scan *scan, const char *key, const char *type, unsigned size,
                 uint64_t elements, uint32_t *ret_index, struct error *err);
/* Appends a copy of t, whose strings are copied. */
int scan_tensor(struct pickle_scan *scan, const struct pickle_tensor *t, uint32_t *ret_index,
                struct error *err);
int scan_name_tensor(struct pickle_scan *scan, uint32_t index, const char *name, struct error *err);
/* Notes the first reason why not everything was seen. */
void scan_broken(struct pickle_scan *scan, uint64_t at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void scan_done(struct pickle_scan *scan);

/* ---- the machine (pickle_machine.c) ---- */

struct value_array {
    struct value *v;
    size_t n, cap;
};

struct pickle_machine {
    struct pickle_scan *scan; /* NULL: a dry run, nothing is recorded */
    struct value_array stack, items, memo;
    void *sparse_memo; /* tsearch() */
    size_t n_sparse, sparse_walks;
    uint64_t distinct;     /* indexes in the memo: where MEMOIZE goes on */
    struct strbuf text;    /* of strings */
    struct strbuf line[2]; /* arguments of the current opcode */
    uint64_t seen_imports;
    size_t first_import; /* scan->n_imports when this pickle began */
    const struct pickle_input *in;
    bool strict_names;  /* imports whose names are no identifiers do not count */
    uint64_t frame_end; /* byte behind the current frame */
    bool torn;          /* a frame ended within an opcode */
    bool odd;           /* it took more from the stack or memo than there was */
    /* Legacy torch: the fifth pickle is the list of the keys of the storages that follow. */
    bool sum_keys, keys_known;
    uint64_t keys_bytes;
    struct value result; /* what STOP found on top */
};

void machine_reset(struct pickle_machine *m); /* for the next pickle */
void machine_done(struct pickle_machine *m);
int machine_push(struct pickle_machine *m, struct value v, struct error *err);
int machine_push_string(struct pickle_machine *m, const char *s, size_t len, struct error *err);
/* The value on top, a blank where there is none or a mark; pop takes it (and the mark) away. */
struct value machine_top(struct pickle_machine *m);
struct value machine_pop(struct pickle_machine *m);
void machine_discard(struct pickle_machine *m);
/* The items above the topmost mark; the mark goes when they do. */
size_t machine_mark(struct pickle_machine *m);
void machine_drop(struct pickle_machine *m, size_t first);
int machine_push_tuple(struct pickle_machine *m, const struct value *items, size_t n,
                       struct error *err);
int machine_put(struct pickle_machine *m, uint64_t index, struct value v, struct error *err);
struct value machine_get(struct pickle_machine *m, uint64_t index);
/* Copies a string value, NUL-terminated; false when v is none, or has a NUL in it or no room. */
bool machine_text(const struct pickle_machine *m, struct value v, char *buf, size_t cap);

/* ---- one pickle (pickle_walk.c) ---- */

enum walk_end {
    WALK_STOP,   /* reached its STOP */
    WALK_BROKEN, /* what came was no opcode or was cut off; noted in the scan */
};

/* Walks the pickle that starts where the input stands. enum walk_end, or -1. */
int pickle_walk(struct pickle_machine *m, struct pickle_input *in, struct error *err);

/* ---- places (pickle_places.c) ---- */

/* A range of scan->current, or a member of the zip that it is. */
struct pickle_place {
    const char *name; /* NULL = the file itself */
    uint64_t from, size;
    const struct zip_member *packed;
};

/* How sure we are that there is a pickle. */
enum belief {
    BELIEVED, /* it is named so, or it is the file: a walk that ends badly is a finding */
    LIKELY,   /* it starts with PROTO: what is imported before a bad end counts */
    POSSIBLE, /* some first opcode: counts when it reaches its STOP and imports something */
};

/* Walks what is there, if it is a pickle. *ret_any: it was one, or something was found. */
int pickle_inspect_place(struct pickle_scan *scan, const struct pickle_place *place,
                         enum belief belief, bool *ret_any, struct error *err);

/* ---- archives (pickle_archives.c); they are scan->current ---- */

#define PICKLE_NESTED_MAX 3u

/* The same for a member, which is named in what is found. named: its name says it is a pickle. */
int pickle_inspect_member(struct pickle_scan *scan, const struct pickle_place *place, bool named,
                          bool *ret_any, struct error *err);

#define TAR_BLOCK 512u
bool pickle_is_tar(const unsigned char *block);
int pickle_inspect_tar(struct pickle_scan *scan, struct error *err);
int pickle_inspect_zip(struct pickle_scan *scan, const struct zip *z, struct error *err);
/* A zip in a member. */
int pickle_inspect_nested(struct pickle_scan *scan, const struct pickle_place *place, bool *ret_any,
                          struct error *err);

/* ---- tensors (pickle_tensors.c) ---- */

/* The key of a storage; false when v is no plain string. cap: over 32. */
bool storage_key(const struct pickle_machine *m, struct value v, char *buf, size_t cap);
/* What a persistent id stands for, and what a call gives: both VALUE_OTHER unless understood. */
int tensor_persistent(struct pickle_machine *m, struct value id, struct value *ret,
                      struct error *err);
int tensor_call(struct pickle_machine *m, struct value callee, struct value args, struct value *ret,
                struct error *err);
/* A call of torch.storage._load_from_bytes: looks into the file in its argument. */
int pickle_load_from_bytes(struct pickle_machine *m, struct value args, struct value *ret,
                           struct error *err);
/* A pair of a dictionary: names a tensor. */
int tensor_name(struct pickle_machine *m, struct value key, struct value v, struct error *err);
/* Sorts the tensors, finds the ones that are the same bytes, sums up. */
int tensors_finish(struct pickle_scan *scan, struct error *err);

#endif
