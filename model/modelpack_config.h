/* The config blob of a ModelPack artifact. Internal to model/. */
#ifndef WB_MODEL_MODELPACK_CONFIG_H
#define WB_MODEL_MODELPACK_CONFIG_H

#include "model/modelpack.h"

/* Appends the config blob. `layers` are the files in the order of the layers. *ret_bad_json: the
 * text of config.json could not be read, and what it would have said is left out. */
int modelpack_put_config(const struct modelpack_input *in,
                         const struct modelpack_file *const *layers, struct strbuf *b,
                         bool *ret_bad_json, struct error *err);

#define MODELPACK_SIZE_MAX 16
/* "134.5M": one decimal, rounded half up; empty below 1000, which has no legal spelling. */
char *modelpack_param_size(uint64_t parameters, char buf[static MODELPACK_SIZE_MAX]);

#endif
