/* Patterns over base names. Internal to model/. */
#ifndef WB_MODEL_CLASSIFY_H
#define WB_MODEL_CLASSIFY_H

#include <stdbool.h>
#include <stddef.h>

/* The part of a path behind its last '/'. */
const char *base_name(const char *path);
/* Does a base name, in any case, match one of the lower-case globs? */
bool matches_any(const char *base, const char *const *patterns, size_t n);

#endif
