/* ONNX models (onnx.proto, protobuf wire format without a magic number): read by walking the fields
 * with bounds; the bytes of tensors are skipped, not read. Sub-graphs (If, Loop, Scan), training
 * graphs and functions count as well.
 */
#ifndef WB_MODEL_ONNX_H
#define WB_MODEL_ONNX_H

#include "model/source.h"
#include "model/weights.h"

#define ONNX_VALUES_MAX 100000u /* inputs or outputs of the main graph */
#define ONNX_TENSORS_MAX 4000000u
#define ONNX_FILES_MAX 10000u /* that external data lies in */

struct onnx_opset {
    char domain[64]; /* "" = ai.onnx */
    int64_t version;
};

struct onnx_value { /* an input or output of the main graph */
    char name[128];
    char type[16];   /* as struct dtype_total; "" not a tensor */
    char shape[128]; /* "batch x 3 x 224 x 224"; "?" for a length, or a whole shape, that is not
                        given; "" a scalar, or not a tensor */
    uint64_t hash;   /* of the whole name; internal */
};

struct onnx_model {
    int64_t ir_version;
    char producer[64], producer_version[32], graph[128];
    struct onnx_opset opsets[16];
    size_t n_opsets;                     /* the first ones */
    struct onnx_value *inputs, *outputs; /* inputs that are initialisers are left out */
    size_t n_inputs, n_outputs;
    uint64_t nodes;
    uint64_t initialisers; /* of the tensors below; of a sparse one its values */
    uint64_t constants;    /* of the tensors below: those in attributes of nodes */
    uint64_t external;     /* tensors whose bytes lie in another file */
    char **external_files; /* their distinct locations, sorted */
    size_t n_external_files;
    struct weights weights; /* types as safetensors names them (and I4, U4, I2, U2, C128, STRING);
                               header_bytes: all of this file that is no tensor byte */
};

/* tensor (may be NULL): for each initialiser and each tensor in an attribute, which may be a
 * constant that holds weights. An external one has sized set, offset of the external file, bytes as
 * its length says. A TensorProto without raw_data has its values in typed fields; its bytes are
 * elements x type size, its offset 0. ERR_INVALID: not an ONNX model, or one whose lengths do not
 * add up; the text names the field and the byte. onnx_done() in any case. */
int onnx_read(const struct byte_source *s,
              int (*tensor)(void *ctx, const struct tensor_info *t, const char *external_file,
                            struct error *err),
              void *ctx, struct onnx_model *ret, struct error *err);
void onnx_done(struct onnx_model *m);

#endif
