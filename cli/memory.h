/* What serving a model takes: counted by memory.c, printed by memory_print.c and
 * memory_json.c. */
#ifndef WB_CLI_MEMORY_H
#define WB_CLI_MEMORY_H

#include "cli/inspect.h"

struct memory_options {
    uint64_t context; /* 0 = the model's */
    uint64_t sequences;
    struct kv_type kv_type;
    bool has_gpu;
    double gpu_gib, utilization;
    uint32_t tensor_parallel;
    const char *quant; /* the weights as this type; NULL = as they are */
    bool has_params;
    uint64_t params;
    bool json, plain_http;
};

#define WEIGHTS_AS_MAX 16
struct memory_weights {
    bool known;
    char type[16]; /* "BF16", "Q4_K_M", "mixed", or what was asked for */
    char from[80]; /* where the numbers came from */
    uint64_t parameters, bytes;
    uint64_t per_device; /* rounded up */
    struct {
        const char *type;
        uint64_t bytes;
    } as[WEIGHTS_AS_MAX]; /* the same parameters in other types */
    size_t n_as;
};

struct memory_gpu {
    uint64_t budget;      /* bytes of one device that may be used */
    bool fits;            /* the weights do */
    uint64_t left;        /* for the cache */
    uint64_t tokens;      /* the longest context of one sequence; UINT64_MAX = no limit */
    uint64_t tokens_each; /* ... of as many sequences as were asked for */
    uint64_t sequences;   /* of the context that was asked for */
};

struct memory_report {
    const char *source;
    const struct memory_options *options;
    struct memory_weights weights;
    bool has_shape;
    const struct model_shape *shape;
    const char *no_shape; /* why there is none */
    uint64_t context;
    struct kv_cost cost;
    uint64_t total; /* weights and cache, on each device */
    struct memory_gpu gpu;
};

void memory_text(const struct memory_report *r, struct strbuf *to);
void memory_json(const struct memory_report *r, struct strbuf *to);

#endif
