/* The prefix parsers behind weights_visit(), and what they share. Internal to model/. */
#ifndef WB_MODEL_PARSERS_H
#define WB_MODEL_PARSERS_H

#include "model/weights.h"

/* Both leave *ret and *ret_need alone where they fail; see weights_visit(). visitor may be NULL. */
int safetensors_parse(const void *data, size_t have, uint64_t file_size,
                      const struct weights_visitor *visitor, struct weights *ret,
                      uint64_t *ret_need, struct error *err);
int gguf_parse(const void *data, size_t have, uint64_t file_size,
               const struct weights_visitor *visitor, struct weights *ret, uint64_t *ret_need,
               struct error *err);

/* Adds to the totals of one type, keeping them sorted. Overflow and a full table are errors. */
int weights_count(struct weights *w, const char *type, uint64_t tensors, uint64_t elements,
                  uint64_t bytes, struct error *err);

/* Appends to w->warning, "; " between; what does not fit is cut. */
void weights_warn(struct weights *w, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Sizes of the ggml tensor types. */
struct ggml_type {
    const char *name;
    uint16_t block; /* elements; 0 = no such type */
    uint16_t bytes; /* of a block */
};
/* NULL for a type that we do not know. */
const struct ggml_type *ggml_type_of(uint32_t type);

#endif
