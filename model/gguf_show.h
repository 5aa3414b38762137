/* Walks once more over a GGUF header that was found right, for a visitor. Internal to model/. */
#ifndef WB_MODEL_GGUF_SHOW_H
#define WB_MODEL_GGUF_SHOW_H

#include "model/gguf_reader.h"
#include "model/weights.h"

struct gguf_contents {
    struct gguf_reader r; /* as it stood before the first key */
    uint64_t n_keys, n_tensors;
    uint64_t data; /* byte of the file at which the tensors' data begins */
    const struct weights_visitor *visitor;
};

/* PREFIX_DONE, or negative: a visitor's error. */
int gguf_show(struct gguf_contents *c);

#endif
