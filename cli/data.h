/* Commands that work on a data directory without a server. */
#ifndef WB_CLI_DATA_H
#define WB_CLI_DATA_H

#include <stdint.h>

#include "storage/store.h"

/* What to do goes behind the text of a store_open() that failed because somebody else is at work on
 * the directory; other errors stay as they are. Returns -1. */
int data_in_use(struct error *err, const char *advice);

/* Opens a directory that is already a data directory: a misspelt name must not become a new, empty
 * one. The store's lock refuses it while a server runs there. */
int data_open(const char *dir, struct store **ret, struct error *err);

/* "1.5 GiB" into buf; returns buf. */
char *format_bytes(uint64_t n, char buf[static 32]);

#endif
