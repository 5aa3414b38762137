/* Hashers that take and give back their threads while they are fed, as many owners at once as would
 * want one. Also run under ThreadSanitizer. WB_STRESS_SECONDS changes how long. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/digest.h"

#define OWNERS 8
#define SIZE ((size_t)1 << 20)

static unsigned char bytes[SIZE + 4096];
static uint64_t deadline;
static _Atomic unsigned long hashed, wrong;

/* One blob, in pieces of odd sizes, from a buffer that is used again at once. */
static bool hash_one(unsigned *seed, const unsigned char *from, size_t len)
{
    static _Thread_local unsigned char buffer[300000];
    struct digest got, want;
    struct hasher *h = NULL;
    if (hasher_new(DIGEST_SHA256, &h, NULL) < 0)
        return false;
    bool ok = true;
    for (size_t at = 0; at < len;) {
        size_t n = (size_t)rand_r(seed) % sizeof(buffer) + 1;
        n = len - at < n ? len - at : n;
        int what = rand_r(seed) % 8;
        if (what < 4)
            hasher_fork(h);
        else if (what == 4)
            hasher_join(h);
        memcpy(buffer, from + at, n);
        ok = ok && hasher_update(h, buffer, n, NULL) == 0;
        memset(buffer, 0, n);
        at += n;
        if (what == 5)
            ok = ok && hasher_peek(h, &got, NULL) == 0 &&
                 digest_of(DIGEST_SHA256, from, at, &want, NULL) == 0 && digest_equal(&got, &want);
    }
    ok = ok && hasher_peek(h, &got, NULL) == 0 &&
         digest_of(DIGEST_SHA256, from, len, &want, NULL) == 0 && digest_equal(&got, &want);
    hasher_free(h);
    return ok;
}

static void *own(void *arg)
{
    unsigned seed = *(unsigned *)arg;
    while (clock_monotonic_ms() < deadline) {
        size_t skip = (size_t)rand_r(&seed) % 4096;
        if (!hash_one(&seed, bytes + skip, (size_t)rand_r(&seed) % SIZE))
            atomic_fetch_add(&wrong, 1);
        atomic_fetch_add(&hashed, 1);
    }
    return NULL;
}

int main(void)
{
    const char *seconds = getenv("WB_STRESS_SECONDS");
    pthread_t threads[OWNERS];
    unsigned seeds[OWNERS];
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (unsigned char)(i * 2654435761u >> 11);
    deadline = clock_monotonic_ms() + 1000u * (unsigned)(seconds ? atoi(seconds) : 2);
    for (unsigned i = 0; i < OWNERS; i++) {
        seeds[i] = i + 1;
        if (pthread_create(&threads[i], NULL, own, &seeds[i]))
            return 1;
    }
    for (unsigned i = 0; i < OWNERS; i++)
        pthread_join(threads[i], NULL);
    printf("stress_hasher: %lu hashed, %lu wrong\n", hashed, wrong);
    return wrong ? 1 : 0;
}
