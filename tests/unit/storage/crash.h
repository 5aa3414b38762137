/* For tests that kill a process at a named point. The store is opened in children only, or in the
 * parent when no child lives. */
#ifndef WB_TESTS_STORAGE_CRASH_H
#define WB_TESTS_STORAGE_CRASH_H

#include "helper.h"

#include <signal.h>

#include "storage/fault.h"

static const char *kill_at;

static UNUSED void die_there(const char *point)
{
    if (strcmp(point, kill_at) == 0)
        raise(SIGKILL);
}

static UNUSED void run_killed(const char *point, void (*fn)(struct store *s))
{
    kill_at = point;
    pid_t pid = fork();
    if (pid == 0) {
        storage_fault = die_there;
        fn(open_store());
        _exit(3); /* the point was not reached */
    }
    int status;
    cr_assert(waitpid(pid, &status, 0) == pid);
    cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "%s: status %x", point, status);
}

static UNUSED void clear_data(void)
{
    char cmd[400];
    snprintf(cmd, sizeof(cmd), "rm -rf %s", data_dir());
    cr_assert(system(cmd) == 0);
}

#endif
