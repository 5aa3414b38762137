/* The config blob of a ModelPack artifact. Internal to model/. */
#ifndef WB_MODEL_MODELPACK_CONFIG_H
#define WB_MODEL_MODELPACK_CONFIG_H

#include "model/modelpack.h"

/* Documents of the repository that could not be read: what they would have said is left out. */
struct modelpack_unread {
    struct modelpack_note notes[2];
    size_t n;
    char config_reason[160], card_reason[100];
};

/* Appends the config blob. `layers` are the files in the order of the layers. */
int modelpack_put_config(const struct modelpack_input *in,
                         const struct modelpack_file *const *layers, struct strbuf *b,
                         struct modelpack_unread *ret_unread, struct error *err);

#define MODELPACK_SIZE_MAX 16
/* "134.5M": one decimal, rounded half up; empty below 1000, which has no legal spelling. */
char *modelpack_param_size(uint64_t parameters, char buf[static MODELPACK_SIZE_MAX]);

#endif
