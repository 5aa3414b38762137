/* Any bytes as an ONNX model: nothing outside of it is read, and tensors lie in it. */
#include "model/onnx.h"
#include "tests/unit/model/memory_source.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct seen {
    uint64_t size, n, elements;
};

static int see_tensor(void *ctx, const struct tensor_info *t, const char *external_file,
                      struct error *err)
{
    struct seen *s = ctx;
    (void)err;
    s->n++;
    s->elements += t->elements;
    if (strlen(t->name) != t->name_len)
        abort();
    if (!external_file && t->offset && (t->offset > s->size || t->bytes > s->size - t->offset))
        abort();
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct memory_source memory = {data, size, 0, 0};
    struct byte_source s = memory_source(&memory);
    struct seen seen = {.size = size};
    struct error err = ERROR_INIT;
    struct onnx_model m;
    if (onnx_read(&s, see_tensor, &seen, &m, &err) == 0) {
        if (seen.n != m.weights.tensors || seen.elements != m.weights.parameters ||
            m.initialisers + m.constants < seen.n || m.weights.header_bytes > size)
            abort();
    } else if (err.code == ERR_NONE || !err.text[0]) {
        abort();
    }
    onnx_done(&m);
    return 0;
}
