/* Commands that work on a data directory without a server. */
#ifndef WB_CLI_DATA_H
#define WB_CLI_DATA_H

#include <stdint.h>

#include "storage/store.h"

/* Opens a directory that is already a data directory: a misspelt name must not become a new, empty
 * one. The store's lock refuses it while a server runs there. */
int data_open(const char *dir, struct store **ret, struct error *err);

/* "1.5 GiB" into buf; returns buf. */
char *format_bytes(uint64_t n, char buf[static 32]);

#endif
