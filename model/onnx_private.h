/* The parts of onnx.c: protobuf fields, tensors. Internal to model/. */
#ifndef WB_MODEL_ONNX_PRIVATE_H
#define WB_MODEL_ONNX_PRIVATE_H

#include "model/onnx.h"

/* ---- protobuf fields of a file (onnx_fields.c) ---- */

#define FIELD_CHUNK 65536u

struct field_reader {
    const struct byte_source *s;
    uint64_t at; /* byte of the file that buf starts with */
    size_t have;
    size_t chunk; /* what is read next time: little after a jump, more in a row */
    unsigned char buf[FIELD_CHUNK];
};

/* A message, or what is left of it. */
struct message {
    uint64_t at, end;
    const char *name; /* for errors: "GraphProto" */
};

enum wire {
    WIRE_VARINT = 0,
    WIRE_64 = 1,
    WIRE_BYTES = 2,
    WIRE_32 = 5,
};

struct field {
    uint32_t number;
    enum wire wire;
    uint64_t tag;     /* byte of its tag */
    uint64_t value;   /* WIRE_VARINT */
    uint64_t at, len; /* its bytes; of WIRE_BYTES without the length */
};

/* 1: *ret is the next field of m, and lies in it; 0: m has no more; -1. */
int field_next(struct field_reader *r, struct message *m, struct field *ret, struct error *err);
static inline struct message field_message(const struct field *f, const char *name)
{
    return (struct message){f->at, f->at + f->len, name};
}
/* Up to cap - 1 bytes of a string, NUL-terminated and cut at a whole character; a NUL or invalid
 * UTF-8 in it are ERR_INVALID. */
int field_string(struct field_reader *r, const struct field *f, const char *what, char *buf,
                 size_t cap, struct error *err);
/* A number that is repeated: one field each, or packed into one. Calls put for each. */
int field_numbers(struct field_reader *r, const struct message *m, const struct field *f,
                  int (*put)(void *ctx, uint64_t v, struct error *err), void *ctx,
                  struct error *err);
int field_bad(const struct message *m, const struct field *f, struct error *err, const char *format,
              ...) __attribute__((format(printf, 4, 5)));

/* ---- tensors (onnx_tensor.c) ---- */

#define ONNX_NAME_MAX 4096u

struct onnx_reading {
    struct field_reader fields;
    struct onnx_model *model;
    int (*tensor)(void *ctx, const struct tensor_info *t, const char *external_file,
                  struct error *err);
    void *ctx;
    uint64_t tensor_bytes; /* in this file, as they are packed */
    size_t cap_inputs, cap_outputs, cap_files;
    uint64_t *names; /* hashes of the main graph's initialisers */
    size_t n_names, cap_names;
    bool has_graph;
};

/* Type of a TensorProto as safetensors names it, "" for none. */
const char *onnx_type_name(uint64_t data_type);
/* Reads a TensorProto and counts it. *ret_name (ONNX_NAME_MAX bytes): its name. */
int onnx_tensor(struct onnx_reading *r, struct message m, const char *fallback_name, char *ret_name,
                struct error *err);

#endif
