/* A checkpoint of several files: a safetensors index and its shards, or the parts of a split GGUF.
 * Holds each tensor's name and place, so that the checks over all files can be made. Everything
 * here is a warning about the checkpoint, and no refusal: all of it is seen in use. */
#ifndef WB_MODEL_CHECKPOINT_H
#define WB_MODEL_CHECKPOINT_H

#include "base/cleanup.h"
#include "model/weights.h"

struct checkpoint;

int checkpoint_new(struct checkpoint **ret, struct error *err);
void checkpoint_free(struct checkpoint *c);
static inline void checkpoint_free_p(struct checkpoint **c)
{
    checkpoint_free(*c);
}
#define _cleanup_checkpoint_ _cleanup_(checkpoint_free_p)

/* The index (model.safetensors.index.json, pytorch_model.bin.index.json), streamed: nothing but
 * the names is kept. ERR_INVALID: no JSON object, no weight_map, a file name with "..", a leading
 * "/" or "://"; ERR_TOO_LARGE: over 250 MB, a million tensors, 10,000 files. */
int checkpoint_index(struct checkpoint *c, const char *json, size_t len, struct error *err);
/* The distinct files that the index names, sorted; borrowed until the next call. */
size_t checkpoint_files(const struct checkpoint *c, const char *const **ret);

/* One file was read: call before its metadata and tensors are fed. path as the index spells it. w
 * NULL: it is there, but its tensors are not known. ERR_INVALID: it was given before, or a sum does
 * not fit 64 bits. */
int checkpoint_file(struct checkpoint *c, const char *path, const struct weights *w,
                    struct error *err);
/* A weights_visitor's functions, with the checkpoint for ctx. ERR_TOO_LARGE: four million tensors.
 */
int checkpoint_metadata(void *c, const struct metadata_info *m, struct error *err);
int checkpoint_tensor(void *c, const struct tensor_info *t, struct error *err);
/* A file that the index names and that is not there. */
int checkpoint_missing(struct checkpoint *c, const char *path, struct error *err);

struct checkpoint_finding {
    char *text; /* "model-00002-of-00003.safetensors: tensor `x` stands in the index and not in the
                   file" */
    bool serious; /* the checkpoint can not be loaded as it is */
};

/* After the last file. The findings are owned by the checkpoint; at most 1,000 are kept, with a
 * last one that counts the rest. *ret_sum: as weights_add() over the files. Checks: a tensor of the
 * map missing from its shard, in a shard and not in the map, in two files, a missing file, the
 * count in the shards' names, metadata.total_size and total_parameters; split.no, split.count and
 * split.tensors.count of a GGUF. */
int checkpoint_check(struct checkpoint *c, const struct checkpoint_finding **ret, size_t *ret_n,
                     struct weights *ret_sum, struct error *err);

#endif
