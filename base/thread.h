/* Threads that nobody joins. */
#ifndef WB_BASE_THREAD_H
#define WB_BASE_THREAD_H

#include <stddef.h>

/* A detached thread with a stack of this size: who must wait for its end counts it. 0 or an errno.
 */
int thread_detached(void *(*body)(void *), void *arg, size_t stack);

#endif
