/* What is found out about the models of a source: for `inspect`, which prints it, and for `memory`,
 * which counts with it. Internal to cli/inspect*.c and cli/memory*.c.
 *
 *     report_make(source, options)    groups the files into models and reads their headers
 *     report_text(), report_json()
 *     report_done()
 */
#ifndef WB_CLI_INSPECT_H
#define WB_CLI_INSPECT_H

#include "cli/source.h"
#include "model/checkpoint.h"
#include "model/decode.h"
#include "model/kv_cache.h"
#include "model/numpy.h"
#include "model/onnx.h"
#include "model/parameters.h"
#include "model/pickle.h"
#include "model/weights.h"

#define PEEK_DEFAULT 8u
#define PEEK_MAX (1u << 20)

struct inspect_options {
    bool tensors, metadata, chat_template, json;
    const char *peek; /* a tensor's name; NULL = none */
    size_t values;    /* how many of them */
};

/* Formats as they are read here; weights_format knows fewer. */
enum model_format {
    MODEL_SAFETENSORS,
    MODEL_GGUF,
    MODEL_PICKLE,
    MODEL_ONNX,
    MODEL_NUMPY,     /* .npy */
    MODEL_NUMPY_ZIP, /* .npz */
    MODEL_UNREAD,    /* of a known kind that is not read: why_unread() */
    MODEL_NONE,
};
/* By the extension. */
enum model_format model_format_of(const char *path);
/* By the first bytes; MODEL_NONE when they do not tell. */
enum model_format model_format_in(const void *data, size_t have, uint64_t size);
const char *model_format_name(enum model_format f);
/* A statement about a format that is not read; NULL for any other. */
const char *why_unread(const char *path);

struct report_file {
    char *path;
    uint64_t size;
    char sha256[65]; /* where the source says it */
    bool read;
    struct weights w;
    uint64_t keys; /* of its metadata */
    bool big_endian;
    char *error; /* why it was not read; NULL = it was */
    enum err_code code;
};

struct report_tensor {
    size_t name; /* in the model's text */
    uint32_t name_len;
    uint32_t file;
    char type[16];
    bool sized;
    size_t dims; /* in the model's dims */
    size_t n_dims;
    uint64_t elements, offset, bytes;
};

struct peeked {
    struct report_tensor tensor; /* name and dims in the model's own */
    struct decoded *values;      /* owned */
    size_t n;
    bool external; /* its bytes lie in another file */
    char why_not[300];
};

struct named_text {
    char *name; /* "" = the only or default one */
    char *text;
    size_t len;
};

struct model_report {
    char *title;  /* the file, the index, or the parts' common name */
    char *folder; /* "" or "path/" */
    char *index;  /* the index's path; NULL = none */
    enum model_format format;
    struct report_file *files;
    size_t n_files, cap_files;
    struct weights sum;
    uint64_t keys;
    struct parameter_count count;
    struct quantization quantization;
    bool has_shape;
    struct model_shape shape;
    char no_shape[300]; /* why there is none */
    char adapter[300];  /* what adapter_config.json says; "" = none */
    char note[200];
    struct strbuf metadata; /* rendered as the options want it */
    struct strbuf text;
    uint64_t *dims;
    size_t n_dims, cap_dims;
    struct report_tensor *tensors; /* with --tensors */
    size_t n_tensors, cap_tensors;
    struct peeked *peeked; /* with --peek, where a tensor has that name */
    struct named_text *templates;
    size_t n_templates;
    struct checkpoint *checkpoint; /* of several files; owns findings */
    const struct checkpoint_finding *findings;
    size_t n_findings;
    bool has_pickle, has_onnx, has_numpy;
    struct pickle_report pickle;
    struct onnx_model onnx;
    struct numpy_array numpy;
    struct shape_keys *shape_keys;
};

struct report_unread {
    char *path;
    const char *why; /* static */
};

struct report {
    struct source *source; /* borrowed */
    const struct inspect_options *options;
    struct model_report *models;
    size_t n_models, cap_models;
    struct report_unread *unread;
    size_t n_unread, cap_unread;
    int status; /* the exit status that what was found asks for */
};

/* ERR_INVALID: nothing there is a model; the text says why. */
int report_make(struct source *s, const struct inspect_options *o, struct report *ret,
                struct error *err);
void report_done(struct report *r);
/* Writes to standard output, which may end early (`| head`); returns the exit status. */
int report_print(const struct strbuf *out);
/* One line on standard error; returns the exit status that the error asks for. */
int source_failed(const char *text, const struct error *err);
#define _cleanup_report_ _cleanup_(report_done)

/* Reads all the files of a model (inspect_read.c). -1 only for what ends the whole command. */
int model_read(struct report *r, struct model_report *m, struct error *err);
/* What the files beside the weights say: config.json, templates, adapter_config.json
 * (inspect_beside.c). */
int model_read_beside(struct report *r, struct model_report *m, struct error *err);
int model_add_template(struct model_report *m, const char *name, const char *text, size_t len,
                       struct error *err);
/* A tensor of file number `file`, for whatever the options want to know of it. */
int model_add_tensor(struct report *r, struct model_report *m, size_t file,
                     const struct tensor_info *t, struct error *err);
int model_add_metadata(struct report *r, struct model_report *m, const struct metadata_info *i,
                       struct error *err);
/* The first values of m->peeked (inspect_peek.c). */
int model_peek(struct report *r, struct model_report *m, struct source_file *f, struct error *err);

void report_text(const struct report *r, struct strbuf *to);
void report_json(const struct report *r, struct strbuf *to);

/* A float in the shortest form that reads back the same. single: of 32 bits. */
void put_real(struct strbuf *b, double value, bool single);

#endif
