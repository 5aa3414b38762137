#include "base/thread.h"

#include <pthread.h>

int thread_detached(void *(*body)(void *), void *arg, size_t stack)
{
    pthread_attr_t attr;
    pthread_t thread;
    int rc = pthread_attr_init(&attr);
    if (rc)
        return rc;
    rc = pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    if (rc == 0)
        rc = pthread_attr_setstacksize(&attr, stack);
    if (rc == 0)
        rc = pthread_create(&thread, &attr, body, arg);
    pthread_attr_destroy(&attr);
    return rc;
}
