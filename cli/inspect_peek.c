/* The first values of one tensor. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/inspect.h"

static int peek(struct model_report *m, struct source_file *f, size_t n, struct error *err)
{
    struct peeked *p = m->peeked;
    const struct report_tensor *t = &p->tensor;
    enum decode_names names = m->format == MODEL_GGUF ? DECODE_GGML : DECODE_SAFETENSORS;
    uint64_t bytes = decode_bytes(names, t->type, n);
    if (bytes > t->bytes) /* sub-byte types may need less than a whole group at the end */
        bytes = t->bytes;
    _cleanup_free_ unsigned char *data = malloc(bytes ? (size_t)bytes : 1);
    p->values = calloc(n ? n : 1, sizeof(*p->values));
    if (!data || !p->values)
        return err_set(err, ERR_NOMEM, "out of memory for %zu values", n);
    const struct byte_source *s = source_file_bytes(f);
    if (bytes && s->read(s->ctx, t->offset, data, (size_t)bytes, err) < 0)
        return -1;
    if (decode(names, t->type, m->files[t->file].big_endian, data, (size_t)bytes, n, p->values,
               err) < 0)
        return -1;
    p->n = n;
    return 0;
}

int model_peek(struct report *r, struct model_report *m, struct source_file *f, struct error *err)
{
    struct peeked *p = m->peeked;
    struct error why = ERROR_INIT;
    size_t n = r->options->values;
    if (n > p->tensor.elements)
        n = (size_t)p->tensor.elements;
    if (p->external || m->format == MODEL_PICKLE ||
        (m->format == MODEL_NUMPY_ZIP && p->tensor.offset == 0)) {
        snprintf(p->why_not, sizeof(p->why_not),
                 "its bytes do not lie in the file in a form that is read");
        return 0;
    }
    if (peek(m, f, n, &why) == 0)
        return 0;
    if (why.code != ERR_UNSUPPORTED && why.code != ERR_INVALID) {
        if (err)
            *err = why;
        return -1;
    }
    snprintf(p->why_not, sizeof(p->why_not), "%s", why.text);
    return 0;
}
