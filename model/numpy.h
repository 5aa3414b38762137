/* NumPy's .npy (numpy/lib/format.py): magic, version, a Python dictionary literal of exactly three
 * keys, data. And .npz, a zip of them. */
#ifndef WB_MODEL_NUMPY_H
#define WB_MODEL_NUMPY_H

#include "model/source.h"
#include "model/weights.h"

struct numpy_array {
    char descr[64]; /* as written: "<f4", "|O", "[('x', '<f4'), ..."; cut where too long */
    char type[16];  /* as struct dtype_total: "F32"; "OBJECT": a pickle that loading would run;
                       "" something without a name here (its size is known all the same) */
    bool fortran_order, big_endian;
    uint64_t dims[64]; /* as many as NumPy 2 allows */
    size_t n_dims;
    uint64_t item; /* bytes of an element; 0 for OBJECT */
    uint64_t elements;
    uint64_t bytes; /* of the elements; of OBJECT: all that follows the header */
    uint64_t header_bytes;
};

/* A prefix parser (model/source.h). ERR_INVALID names the rule and the byte. A file longer than its
 * array is legal, one that is shorter is not. */
int numpy_parse(const void *data, size_t have, uint64_t file_size, struct numpy_array *ret,
                uint64_t *ret_need, struct error *err);
/* A .npz; tensor is called for each array, in the order of the members, with the member's name
 * without ".npy" (offset: of the first element in the zip; 0 when it is compressed). Its type is
 * "UNKNOWN" where there is no name for it. Members that are no arrays are counted into the warning
 * and passed by; ERR_INVALID: none is one, or an array breaks a rule. */
int numpy_zip_read(const struct byte_source *s,
                   int (*tensor)(void *ctx, const struct tensor_info *t, struct error *err),
                   void *ctx, struct weights *ret, struct error *err);

#endif
