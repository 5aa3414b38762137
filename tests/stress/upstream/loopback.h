/* A server on the loopback interface, with a thread for each connection, and what a stress program
 * needs besides. Header-only: every program is one source file. */
#ifndef WB_TESTS_LOOPBACK_H
#define WB_TESTS_LOOPBACK_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CHECK(cond, ...)                                                                           \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #cond);                             \
            fprintf(stderr, __VA_ARGS__);                                                          \
            fprintf(stderr, "\n");                                                                 \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

struct loopback {
    int listener;
    uint16_t port;
    void *(*serve)(void *fd); /* closes it */
    pthread_t thread;
};

static inline void *loopback_accept(void *arg)
{
    const struct loopback *l = arg;
    for (;;) {
        int fd = accept(l->listener, NULL, NULL);
        pthread_t thread;
        if (fd < 0)
            return NULL;
        CHECK(pthread_create(&thread, NULL, l->serve, (void *)(intptr_t)fd) == 0, "no thread");
        pthread_detach(thread);
    }
}

/* l outlives the connections. */
static inline void loopback_start(struct loopback *l, void *(*serve)(void *fd))
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(a);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&a, sizeof(a)) == 0 && listen(fd, 256) == 0 &&
              getsockname(fd, (struct sockaddr *)&a, &len) == 0,
          "no listener");
    *l = (struct loopback){.listener = fd, .port = ntohs(a.sin_port), .serve = serve};
    CHECK(pthread_create(&l->thread, NULL, loopback_accept, l) == 0, "no thread");
}

static inline void loopback_stop(struct loopback *l)
{
    shutdown(l->listener, SHUT_RDWR);
    pthread_join(l->thread, NULL);
    close(l->listener);
}

/* The next request's head, with a NUL; false at the end of the connection. */
static inline bool loopback_head(int fd, char *buf, size_t size)
{
    size_t have = 0;
    buf[0] = '\0';
    while (!strstr(buf, "\r\n\r\n")) {
        ssize_t n = recv(fd, buf + have, size - 1 - have, 0);
        if (n <= 0)
            return false;
        have += (size_t)n;
        buf[have] = '\0';
    }
    return true;
}

static inline bool send_all(int fd, const void *data, size_t len)
{
    const char *p = data;
    while (len) {
        ssize_t n = send(fd, p, len, MSG_NOSIGNAL);
        if (n <= 0)
            return false;
        p += n;
        len -= (size_t)n;
    }
    return true;
}

static inline void remove_folder(const char *dir)
{
    char command[100];
    snprintf(command, sizeof(command), "rm -r %s", dir);
    CHECK(system(command) == 0, "%s is left", dir);
}

#endif
