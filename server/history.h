/* A tag's history as JSON: what the admin API answers, and `weighbridge history --json` prints. */
#ifndef WB_SERVER_HISTORY_H
#define WB_SERVER_HISTORY_H

#include <stddef.h>

#include "base/strbuf.h"
#include "storage/push.h"

/* Appends one line: the newest `limit` events, newest first. */
void history_write(const char *repository, const char *tag, const struct tag_history *h,
                   size_t limit, struct strbuf *to);

#endif
