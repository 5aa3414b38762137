/* What a checkpoint holds. Internal to model/checkpoint*.c. */
#ifndef WB_MODEL_CHECKPOINT_PRIVATE_H
#define WB_MODEL_CHECKPOINT_PRIVATE_H

#include "base/strbuf.h"
#include "model/checkpoint.h"

#define INDEX_MAX (250u << 20)
#define MAP_MAX 1000000u     /* tensors of the index */
#define TENSORS_MAX 4000000u /* of the files */
#define FILES_MAX 10000u
#define FINDINGS_MAX 1000u

struct checkpoint_part {
    char *path; /* owned */
    bool in_index;
    bool read;  /* given to checkpoint_file() */
    bool known; /* with its weights */
    bool missing;
    uint64_t mapped; /* tensors that the index puts into it */
    uint64_t tensors;
    unsigned split_no, split_count; /* GGUF: as its metadata says */
    bool has_split_tensors;
    uint64_t split_tensors;
};

/* A name as the index or a file has it. The same name can be there several times: they are found
 * by sorting, which no choice of names makes slow. */
struct checkpoint_entry {
    uint64_t hash;
    size_t at; /* in the checkpoint's names */
    uint32_t len;
    bool in_map; /* from the index, not from a file */
    struct checkpoint_part *file;
};

struct checkpoint {
    bool has_index;
    bool has_total_size, has_total_parameters;
    uint64_t total_size, total_parameters;
    bool odd_total;                 /* a total that is no whole number */
    struct checkpoint_part **files; /* owned, by path */
    const char **paths;             /* owned; of those in the index */
    size_t n_files, n_paths;
    struct checkpoint_part *current;
    struct strbuf names;
    struct checkpoint_entry *entries; /* owned */
    size_t n, cap, n_map;
    struct weights sum;
    struct checkpoint_finding *findings; /* owned */
    size_t n_findings;
    uint64_t left_out; /* findings beyond FINDINGS_MAX */
    bool left_out_serious;
};

/* The file of a path, made when it is new. ERR_TOO_LARGE above FILES_MAX. */
int checkpoint_file_of(struct checkpoint *c, const char *path, size_t len,
                       struct checkpoint_part **ret, struct error *err);
int checkpoint_add(struct checkpoint *c, const char *name, size_t len, bool in_map,
                   struct checkpoint_part *file, struct error *err);

#endif
