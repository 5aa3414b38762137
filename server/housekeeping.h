/* The thread that does what nobody asks for: gives up upload sessions that were left alone. */
#ifndef WB_SERVER_HOUSEKEEPING_H
#define WB_SERVER_HOUSEKEEPING_H

#include <stdint.h>

#include "base/err.h"

struct store;
struct housekeeping;

/* uploads_expire_s: see config.h. The store outlives it. */
int housekeeping_start(struct store *s, uint64_t uploads_expire_s, struct housekeeping **ret,
                       struct error *err);
/* Waits for what it is doing just then. NULL is fine. */
void housekeeping_stop(struct housekeeping *h);

#endif
