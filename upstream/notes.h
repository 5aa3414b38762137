/* What is remembered for a while, in memory: negative answers, and that something was asked. By a
 * key that the caller makes. Thread-safe.
 */
#ifndef WB_UPSTREAM_NOTES_H
#define WB_UPSTREAM_NOTES_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define NOTES_MAX 1024u

/* Bounded: the oldest note makes room. A note is a negative answer, or only says that something was
 * asked (ERR_NONE). */
struct note {
    uint64_t hash, until_ms;
    char *key, *text;
    enum err_code code;
    bool is_gone; /* it is the upstream's word, as opposed to a policy of ours */
};
struct notes {
    pthread_mutex_t lock; /* guards: all below */
    struct note *items;
    size_t n, oldest;
};
int notes_init(struct notes *n, struct error *err);
void notes_done(struct notes *n);
/* Running out of memory only means that the upstream is asked again. */
void notes_put(struct notes *n, const char *key, uint64_t ttl_s, const struct error *answer,
               bool is_gone);
/* Whether there is one that still counts; what it says goes to the other two (may be NULL). */
bool notes_get(struct notes *n, const char *key, struct error *ret, bool *ret_gone);

#endif
