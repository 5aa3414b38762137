/* Names of the parts of one model: `stem-00001-of-00004.gguf`. Internal to model/. */
#ifndef WB_MODEL_SPLIT_H
#define WB_MODEL_SPLIT_H

#include <stdbool.h>
#include <stddef.h>

struct split_name {
    size_t stem;        /* bytes of the path up to the part's number, or up to the extension */
    unsigned no, count; /* 1-based; 0, 0 when the name is not a part's */
};

/* Understands 5 digits (and 6, which safetensors writers use from 100,000 parts on). */
struct split_name split_name_of(const char *path);

#endif
