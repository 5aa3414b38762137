/* A list of modules' names, as quantisation configurations have them: names, parts of names, globs
 * and plain expressions. Each of a file's tensors is held against it, a million of them in a
 * hostile header, so that what can be found by halving a sorted list is; the few texts that have
 * to be tried one by one are bounded in number, and what they cost is counted. Internal to model/.
 */
#ifndef WB_MODEL_MODULE_LIST_H
#define WB_MODEL_MODULE_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct module_text {
    char *text;     /* owned */
    uint32_t group; /* that it is for */
};

struct module_texts {
    struct module_text *items; /* owned */
    size_t n;
};

/* Zero: empty. Fill it, module_list_sort() it, ask. */
struct module_list {
    struct module_texts names;  /* whole names */
    struct module_texts starts; /* "layers.3.*": what a name begins with */
    struct module_texts parts;  /* what stands anywhere in it */
    struct module_texts globs;  /* all others, in the order that they came in */
};

/* How many there may be in all lists of a configuration; count from zero. */
struct module_counts {
    uint32_t names, parts, globs;
};

#define MODULE_NONE UINT32_MAX

/* Each appends one text; it is for `group`. ERR_TOO_LARGE: more than any model has. An expression
 * is one of the plain kind that these files have ("^model\.layers.*"), which is rewritten as a
 * glob; one with any other operator matches nothing: what comes from a file is not run as an
 * expression. In a glob "*" stands for any text. */
int module_list_add_name(struct module_list *l, struct module_counts *c, const char *text,
                         uint32_t group, struct error *err);
int module_list_add_part(struct module_list *l, struct module_counts *c, const char *text,
                         uint32_t group, struct error *err);
int module_list_add_glob(struct module_list *l, struct module_counts *c, const char *text,
                         uint32_t group, struct error *err);
int module_list_add_expression(struct module_list *l, struct module_counts *c, const char *text,
                               uint32_t group, struct error *err);
void module_list_sort(struct module_list *l);

/* The least group of what matches the name, MODULE_NONE for nothing. Of a list with starts or parts
 * only whether anything matches is meant. *work grows by what it took: one for each text that was
 * compared, and for a glob the bytes of both. */
uint32_t module_list_find(const struct module_list *l, const char *name, uint64_t *work);

void module_list_done(struct module_list *l);

#endif
