#include "redis/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/descriptors.h"

static redisAsyncContext *connect_async(const struct address *address)
{
    /* numeric: a name would make redisAsyncConnect() block in getaddrinfo() */
    char host[NI_MAXHOST];

    if (!hiredis_memory_reserve())
        return NULL;
    if (address_is_unix(address))
        return redisAsyncConnectUnix(address->local.sun_path);
    if (getnameinfo(&address->any, address->length, host, sizeof host, NULL, 0, NI_NUMERICHOST) !=
        0)
        return NULL;
    return redisAsyncConnect(host, address_port(address));
}

redisAsyncContext *redis_socket_dial(const struct address *address)
{
    errno = 0;
    redisAsyncContext *ac = connect_async(address);

    if (!ac || !ac->err || !descriptors_lack(errno) ||
        !descriptors_give(DESCRIPTOR_FOR_REDIS, errno))
        return ac;
    redisAsyncFree(ac); /* no callbacks are set yet */
    return connect_async(address);
}

static int open_socket(int family)
{
    return socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

int redis_socket_open(const struct address *address)
{
    int fd = open_socket(address->any.sa_family);

    if (fd < 0 && descriptors_lack(errno) && descriptors_give(DESCRIPTOR_FOR_REDIS, errno))
        fd = open_socket(address->any.sa_family);
    if (fd < 0 || connect(fd, &address->any, address->length) == 0 || errno == EINPROGRESS)
        return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

int redis_socket_duplicate(const redisAsyncContext *ac)
{
    int fd;

    while ((fd = fcntl((int)ac->c.fd, F_DUPFD_CLOEXEC, 3)) < 0)
        if (!descriptors_lack(errno) || !descriptors_give(DESCRIPTOR_FOR_REDIS, errno))
            break;
    return fd;
}

#if HIREDIS_MAJOR == 1 && HIREDIS_MINOR == 0
#error "hiredis 1.0 takes a full socket buffer for an error and aborts; use 0.14, or 1.1 or newer"
#endif

redisAsyncContext *redis_socket_replace(redisAsyncContext *ac, int fd)
{
#if HIREDIS_MAJOR >= 1
    redisOptions options = {.type = REDIS_CONN_USERFD, .endpoint.fd = fd};

    redisAsyncFree(ac); /* no callbacks are set yet */
    if (!(ac = redisAsyncConnectWithOptions(&options)))
        close(fd);
    else /* otherwise hiredis would call connect(2) without an address */
        ac->c.flags |= REDIS_CONNECTED;
    return ac;
#else
    /* 0.14 has no function for it. Its check of the connection, SO_ERROR, works with any socket. */
    bool good = dup3(fd, ac->c.fd, O_CLOEXEC) >= 0;

    close(fd);
    if (good)
        return ac;
    redisAsyncFree(ac);
    return NULL;
#endif
}

void redis_socket_options(int fd, const struct address *address)
{
    int on = 1, idle = 15, interval = 5, probes = 3;

    if (address_is_unix(address))
        return;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

bool redis_socket_last_words(int fd, char *words, size_t size)
{
    ssize_t n = recv(fd, words, size - 1, MSG_PEEK | MSG_DONTWAIT);

    if (n <= 1 || words[0] != '-')
        return false;
    words[n] = 0;
    memmove(words, words + 1, (size_t)n);
    words[strcspn(words, "\r\n")] = 0;
    return true;
}
