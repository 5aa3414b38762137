/* How many parameters the model has, as opposed to how many elements its file stores: packed
 * quantised weights hold several parameters in one element, and scales are none. The rules are
 * those by which the Hub counts. */
#ifndef WB_MODEL_PARAMETERS_H
#define WB_MODEL_PARAMETERS_H

#include "model/weights.h"

/* What config.json says about quantisation (quantization_config, also in text_config, and
 * quantize_config.json of older GPTQ files). Zero: none. */
struct quantization {
    char method[32]; /* "gptq", "awq", "fp8", "bitsandbytes", "mxfp4", "compressed-tensors",
                        "modelopt",
                        ... in lower case; "" = none */
    unsigned bits;   /* 0 = not stated */
    char format[32]; /* compressed-tensors: "pack-quantized"; modelopt's quant_algo: "NVFP4" */
    bool load_in_4bit, load_in_8bit;
    bool packed_experts; /* fp8 with expert_dtype fp4 */
    char **skipped; /* modules that are not quantised: names, globs and "re:" expressions; owned */
    size_t n_skipped;
};

/* ERR_INVALID: no JSON object. A config without quantisation is no error. */
int quantization_read(const char *config_json, size_t len, struct quantization *ret,
                      struct error *err);
void quantization_done(struct quantization *q);

struct parameter_count {
    uint64_t stored;  /* elements */
    uint64_t logical; /* parameters */
    char rule[120]; /* the rule that was used, for people: "sum of the shapes", "gptq 4 bit: qweight
                       x 8, scales left out" */
};

/* Fed tensor by tensor. Zero *c first (rule too); q may be NULL. ERR_INVALID on overflow. */
int parameters_add(struct parameter_count *c, const struct quantization *q,
                   enum weights_format format, const struct tensor_info *t, struct error *err);
/* After the last tensor: writes the rule. */
void parameters_end(struct parameter_count *c, const struct quantization *q);

#endif
