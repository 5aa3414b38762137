/* weighbridge, as a test runs it that wants to see what a crash at a certain place leaves behind:
 * the same program, which kills itself with SIGKILL when it comes to a named point of
 * storage/fault.h.
 *
 *     WB_KILL_AT=publish.renamed:2    at the second time
 *
 * Only this program knows the variable; the server itself refuses unknown WEIGHBRIDGE_ ones. */
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "storage/fault.h"

static char kill_at[64];
static atomic_long left;

static void pass(const char *point)
{
    if (strcmp(point, kill_at) == 0 && atomic_fetch_sub(&left, 1) == 1)
        kill(getpid(), SIGKILL);
}

/* Before main(), which is the shipped one. */
__attribute__((constructor)) static void set_up(void)
{
    const char *wanted = getenv("WB_KILL_AT");
    if (!wanted)
        return;
    const char *colon = strchr(wanted, ':');
    char *end = NULL;
    long n = colon ? strtol(colon + 1, &end, 10) : 0;
    if (n < 1 || *end || (size_t)(colon - wanted) >= sizeof(kill_at)) {
        fprintf(stderr, "WB_KILL_AT is not POINT:NUMBER: %s\n", wanted);
        _exit(2);
    }
    memcpy(kill_at, wanted, (size_t)(colon - wanted));
    atomic_store(&left, n);
    storage_fault = pass;
}
