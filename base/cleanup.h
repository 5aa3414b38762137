/* Scope-bound cleanup and hand-over of what a local owns (gcc/clang `cleanup` attribute).
 *
 *     _cleanup_free_ char *text = NULL;
 *     _cleanup_close_ int fd = -1;
 *     ...
 *     *ret_fd = TAKE_FD(fd);      // the caller owns it from here on
 */
#ifndef WB_BASE_CLEANUP_H
#define WB_BASE_CLEANUP_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define _cleanup_(fn) __attribute__((cleanup(fn)))

static inline void cleanup_free_p(void *p)
{
    free(*(void **)p);
}

static inline void cleanup_close_p(int *fd)
{
    if (*fd >= 0)
        close(*fd);
}

static inline void cleanup_fclose_p(FILE **f)
{
    if (*f)
        fclose(*f);
}

#define _cleanup_free_ _cleanup_(cleanup_free_p)
#define _cleanup_close_ _cleanup_(cleanup_close_p)
#define _cleanup_fclose_ _cleanup_(cleanup_fclose_p)

#define TAKE_PTR(p)                                                                                \
    __extension__({                                                                                \
        __typeof__(p) take_tmp_ = (p);                                                             \
        (p) = NULL;                                                                                \
        take_tmp_;                                                                                 \
    })
#define TAKE_FD(fd)                                                                                \
    __extension__({                                                                                \
        int take_tmp_ = (fd);                                                                      \
        (fd) = -1;                                                                                 \
        take_tmp_;                                                                                 \
    })

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

#endif
