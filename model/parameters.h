/* How many parameters the model has, as opposed to how many elements its file stores: packed
 * quantised weights hold several parameters in one element, and scales are none. The rules are
 * those by which the Hub counts (huggingface.js, parse-safetensors-metadata.ts); where the Hub
 * counts packed bytes as if they were weights (ModelOpt, MLX, torchao, BitNet), ours says so. */
#ifndef WB_MODEL_PARAMETERS_H
#define WB_MODEL_PARAMETERS_H

#include "model/module_list.h"
#include "model/weights.h"

/* One config group of compressed-tensors: some modules have another width. MLX's overrides too. */
struct quantization_group {
    unsigned bits;   /* 0 = not stated */
    char format[40]; /* "" = the one of all */
};

/* What config.json says about quantisation (quantization_config, also in text_config and its like;
 * MLX's `quantization`), or the file beside it of older GPTQ (quantize_config.json), AWQ
 * (quant_config.json) and ModelOpt (hf_quant_config.json). Zero: none. */
struct quantization {
    char method[32]; /* "gptq", "awq", "fp8", "bitsandbytes", "mxfp4", "compressed-tensors",
                        "modelopt", "mlx", ... in lower case; "unstated"; "" = none */
    unsigned bits;   /* 0 = not stated */
    char format[40]; /* compressed-tensors: "pack-quantized"; modelopt's quant_algo: "NVFP4" */
    bool load_in_4bit, load_in_8bit;
    bool packed_experts;               /* fp8 with a narrower expert_dtype */
    unsigned expert_bits;              /* of that */
    struct module_list skipped;        /* modules_to_not_convert: held against a tensor's name */
    struct module_list ignored;        /* ignore: against its module's */
    struct quantization_group *groups; /* owned */
    size_t n_groups;
    struct module_list targets; /* what the groups are for: modules, "re:" expressions, and classes
                                   that no tensor is named by */
    struct module_counts counts;
};

/* ERR_INVALID: no JSON object. ERR_TOO_LARGE: a list of more entries than any model has. A config
 * without quantisation is no error. quantization_done() in any case. */
int quantization_read(const char *config_json, size_t len, struct quantization *ret,
                      struct error *err);
void quantization_done(struct quantization *q);

struct parameter_count {
    uint64_t stored;  /* elements */
    uint64_t logical; /* parameters */
    char rule[120]; /* the rule that was used, for people: "sum of the shapes", "gptq 4 bit: packed
                       weights x 8; 448 scales and the like left out" */
    /* for the rule */
    uint64_t left_out, unpacked; /* tensors */
    unsigned times[2];           /* of the first unpacked tensor: times [0] / [1] */
    bool mixed;                  /* not all the same */
    uint64_t work; /* what holding tensors against lists of modules took, module_list_find() */
    bool unread;   /* over PARAMETERS_WORK_MAX: the lists were not applied, logical is stored */
};

/* A second or two. Real models are far below it; a hostile list beside a hostile header is not. */
#define PARAMETERS_WORK_MAX 2000000000u

/* Fed tensor by tensor. Zero *c first; q may be NULL. ERR_INVALID on overflow. Rules of packing
 * are for safetensors and pickles; in other formats an element is a parameter. */
int parameters_add(struct parameter_count *c, const struct quantization *q,
                   enum weights_format format, const struct tensor_info *t, struct error *err);
/* Adds the count of another file of the same model. ERR_INVALID on overflow; *c is untouched. */
int parameters_merge(struct parameter_count *c, const struct parameter_count *one,
                     struct error *err);
/* After the last tensor: writes the rule. */
void parameters_end(struct parameter_count *c, const struct quantization *q);

#endif
