#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/cleanup.h"
#include "server/request.h"

#define BACKLOG 1024

bool address_is_loopback(const struct sockaddr *a)
{
    if (a->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const void *)a;
        return ntohl(in->sin_addr.s_addr) >> 24 == 127;
    }
    if (a->sa_family == AF_INET6) {
        const struct in6_addr *in6 = &((const struct sockaddr_in6 *)(const void *)a)->sin6_addr;
        return IN6_IS_ADDR_LOOPBACK(in6) || (IN6_IS_ADDR_V4MAPPED(in6) && in6->s6_addr[12] == 127);
    }
    return a->sa_family == AF_UNIX;
}

static void format_address(const char *host, unsigned port, char *buf, size_t size)
{
    snprintf(buf, size, strchr(host, ':') ? "[%s]:%u" : "%s:%u", host, port);
}

static void cleanup_addrinfo(struct addrinfo **a)
{
    if (*a)
        freeaddrinfo(*a);
}

static int bind_and_listen(int fd, const struct addrinfo *a, const char *address, struct error *err)
{
    int on = 1, off = 0;
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0)
        return err_errno(err, "listen on %s", address);
    /* "::" means every address, IPv4 ones too, whatever the machine's default is. */
    if (a->ai_family == AF_INET6 &&
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)) < 0)
        return err_errno(err, "listen on %s", address);
    if (bind(fd, a->ai_addr, a->ai_addrlen) < 0 || listen(fd, BACKLOG) < 0) {
        if (errno == EADDRINUSE)
            return err_set(err, ERR_IO,
                           "cannot listen on %s: another program already does; stop it, or choose "
                           "another address with \"listen\" (--listen, WEIGHBRIDGE_LISTEN)",
                           address);
        if (errno == EADDRNOTAVAIL)
            return err_set(err, ERR_IO,
                           "cannot listen on %s: this machine has no such address; correct "
                           "\"listen\" (--listen, WEIGHBRIDGE_LISTEN)",
                           address);
        if (errno == EACCES)
            return err_set(err, ERR_IO,
                           "cannot listen on %s: not permitted (ports below 1024 need "
                           "CAP_NET_BIND_SERVICE); choose another with \"listen\" (--listen, "
                           "WEIGHBRIDGE_LISTEN)",
                           address);
        return err_errno(err, "cannot listen on %s (\"listen\")", address);
    }
    return 0;
}

static int real_port(int fd, unsigned *ret, struct error *err)
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } bound = {0};
    socklen_t len = sizeof(bound);
    if (getsockname(fd, &bound.any, &len) < 0)
        return err_errno(err, "getsockname");
    *ret = ntohs(bound.any.sa_family == AF_INET6 ? bound.v6.sin6_port : bound.v4.sin_port);
    return 0;
}

int listen_open(const struct config *c, int *ret_fd, char *url, size_t url_size, struct error *err)
{
    char address[300], port_text[8];
    if (config_check_access(c, err) < 0)
        return -1;
    format_address(c->listen_host, c->listen_port, address, sizeof(address));
    snprintf(port_text, sizeof(port_text), "%u", c->listen_port);
    const struct addrinfo hints = {.ai_family = AF_UNSPEC,
                                   .ai_socktype = SOCK_STREAM,
                                   .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    _cleanup_(cleanup_addrinfo) struct addrinfo *found = NULL;
    int r = getaddrinfo(c->listen_host, port_text, &hints, &found);
    if (r != 0)
        return err_set(err, ERR_IO,
                       "cannot listen on %s: %s; correct \"listen\" (--listen, "
                       "WEIGHBRIDGE_LISTEN)",
                       address, gai_strerror(r));
    _cleanup_close_ int fd =
        socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_errno(err, "cannot listen on %s", address);
    unsigned port = 0;
    if (bind_and_listen(fd, found, address, err) < 0 || real_port(fd, &port, err) < 0)
        return -1;
    format_address(c->listen_host, port, address, sizeof(address));
    snprintf(url, url_size, "http://%s", address);
    *ret_fd = TAKE_FD(fd);
    return 0;
}
