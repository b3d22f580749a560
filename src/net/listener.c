#include "net/listener.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/stat.h>
#include <unistd.h>

static bool set_on(int fd, int level, int option)
{
    int on = 1;
    return setsockopt(fd, level, option, &on, sizeof on) == 0;
}

/* A socket file is stale if no process accepts connections on it. Only a stale file is removed. */
static bool remove_stale_file(const struct address *address)
{
    struct stat st;
    if (stat(address->local.sun_path, &st) != 0)
        return errno == ENOENT;
    if (!S_ISSOCK(st.st_mode)) {
        errno = EEXIST;
        return false;
    }
    int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (probe < 0)
        return false;
    int failure = connect(probe, &address->any, address->length) == 0 ? EADDRINUSE : errno;
    close(probe);
    errno = failure;
    return failure == ECONNREFUSED && unlink(address->local.sun_path) == 0;
}

const char *listener_remedy(int error)
{
    switch (error) {
    case EADDRINUSE: return "; stop the process that uses it (ss -lnp), or change the address";
    case EADDRNOTAVAIL: return "; no interface of this machine has that address";
    case EACCES:
        return "; ports below 1024 need CAP_NET_BIND_SERVICE, sockets a writable directory";
    case EEXIST: return "; that file is no socket: remove it, or change the address";
    case ENOENT: return "; make its directory, or change the address";
    case EMFILE: return "; raise LimitNOFILE (ulimit -n)";
    default: return "";
    }
}

static int open_one(const struct address *address, const char **why)
{
    int family = address->any.sa_family;
    int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    *why = "socket";
    if (fd < 0)
        return -1;
    *why = "setsockopt";
    if (family != AF_UNIX &&
        (!set_on(fd, SOL_SOCKET, SO_REUSEADDR) || !set_on(fd, SOL_SOCKET, SO_REUSEPORT)))
        goto failed;
    if (family == AF_INET6 && !set_on(fd, IPPROTO_IPV6, IPV6_V6ONLY))
        goto failed;
    *why = "bind";
    if (family == AF_UNIX && !remove_stale_file(address))
        goto failed;
    if (bind(fd, &address->any, address->length) != 0)
        goto failed;
    *why = "listen";
    if (listen(fd, LISTENER_BACKLOG) != 0)
        goto failed;
    return fd;
failed:;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

/* With SO_REUSEPORT, a second weir of the same user would silently share the port. A plain bind
 * first detects this. */
static bool port_is_free(const struct address *address, const char **why)
{
    if (address_is_unix(address))
        return true;
    int fd = socket(address->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    *why = "bind";
    if (fd < 0)
        return false;
    if (address->any.sa_family == AF_INET6)
        (void)set_on(fd, IPPROTO_IPV6, IPV6_V6ONLY);
    bool is_free =
        set_on(fd, SOL_SOCKET, SO_REUSEADDR) && bind(fd, &address->any, address->length) == 0;
    int error = errno;
    close(fd);
    errno = error;
    return is_free;
}

bool listener_open(struct address *address, unsigned count, int *fds, const char **why)
{
    unsigned opened = 0;

    if (!port_is_free(address, why))
        return false;
    for (; opened < count; opened++) {
        bool shared = opened > 0 && address_is_unix(address);
        fds[opened] = shared ? fcntl(fds[0], F_DUPFD_CLOEXEC, 0) : open_one(address, why);
        if (fds[opened] < 0)
            break;
        /* the largest member; replaces port 0 with the port that the kernel chose */
        socklen_t length = sizeof address->local;
        if (opened == 0 && !address_is_unix(address) &&
            getsockname(fds[0], &address->any, &length) == 0)
            address->length = length;
    }
    if (opened == count)
        return true;
    int error = errno;
    while (opened)
        close(fds[--opened]);
    errno = error;
    return false;
}

void listener_unlink(const struct address *address)
{
    if (address_is_unix(address))
        unlink(address->local.sun_path);
}

void socket_set_options(int fd, const struct address *peer)
{
    if (!address_is_unix(peer))
        /* Send heads and pieces of content immediately. */
        (void)set_on(fd, IPPROTO_TCP, TCP_NODELAY);
}

void socket_limit_unsent(int fd)
{
    int bytes = UNSENT_MAX;

    (void)setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &bytes, sizeof bytes);
}
