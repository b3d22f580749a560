#include "net/inherited.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "config.h"

#ifdef HAVE_SYSTEMD
#include <systemd/sd-daemon.h>

/* Completes a socket whose `fd` and `name` are set. */
static bool describe(struct inherited_socket *socket, const char **why)
{
    int flags = fcntl(socket->fd, F_GETFL);

    socket->address.length = sizeof socket->address.local;
    *why = "one of them does not listen for streams (ListenStream=, Accept=no)";
    if (sd_is_socket(socket->fd, AF_UNSPEC, SOCK_STREAM, 1) <= 0 || flags < 0 ||
        getsockname(socket->fd, &socket->address.any, &socket->address.length) != 0)
        return false;
    *why = "one of them cannot be made non-blocking";
    return fcntl(socket->fd, F_SETFL, flags | O_NONBLOCK) == 0;
}

bool inherited_receive(struct inherited *inherited, const char **why)
{
    char **names = NULL;
    int count = sd_listen_fds_with_names(1, &names);

    *inherited = (struct inherited){0};
    *why = "sd_listen_fds";
    if (count <= 0)
        return count == 0;
    *why = "no memory";
    if (!(inherited->sockets = calloc((size_t)count, sizeof *inherited->sockets)))
        return false;
    inherited->count = (unsigned)count;
    bool good = true;
    for (unsigned i = 0; i < inherited->count; i++) {
        inherited->sockets[i] =
            (struct inherited_socket){SD_LISTEN_FDS_START + (int)i, names[i], {{{0}}, 0}};
        good = good && describe(&inherited->sockets[i], why);
    }
    free(names);
    return good;
}

#else

bool inherited_receive(struct inherited *inherited, const char **why)
{
    *inherited = (struct inherited){0};
    *why = NULL;
    return true;
}

#endif

static bool is_any_v4(const struct address *address)
{
    return address->any.sa_family == AF_INET && address->v4.sin_addr.s_addr == htonl(INADDR_ANY);
}

/* Returns whether the socket accepts IPv4 and IPv6 on all addresses. */
static bool is_any_of_both(const struct inherited_socket *socket)
{
    int v6_only = 1;
    socklen_t size = sizeof v6_only;

    return socket->address.any.sa_family == AF_INET6 &&
           IN6_IS_ADDR_UNSPECIFIED(&socket->address.v6.sin6_addr) &&
           getsockopt(socket->fd, IPPROTO_IPV6, IPV6_V6ONLY, &v6_only, &size) == 0 && !v6_only;
}

static bool is_bound_to(const struct inherited_socket *socket, const struct address *wanted)
{
    const struct address *have = &socket->address;

    if (address_is_unix(wanted))
        return address_is_unix(have) && strcmp(have->local.sun_path, wanted->local.sun_path) == 0;
    return address_same(have, wanted);
}

int inherited_take(struct inherited *inherited, const char *name, struct address *wanted)
{
    struct inherited_socket *named = NULL, *bound = NULL, *both = NULL;

    for (unsigned i = 0; i < inherited->count; i++) {
        struct inherited_socket *socket = &inherited->sockets[i];
        if (socket->fd < 0)
            continue;
        if (strcmp(socket->name, name) == 0)
            named = socket;
        if (is_bound_to(socket, wanted))
            bound = socket;
        if (is_any_v4(wanted) && is_any_of_both(socket) &&
            socket->address.v6.sin6_port == wanted->v4.sin_port)
            both = socket;
    }
    struct inherited_socket *found = named ? named : bound ? bound : both;
    if (!found)
        return -1;
    int fd = found->fd;
    *wanted = found->address;
    found->fd = -1;
    return fd;
}

const struct inherited_socket *inherited_left(const struct inherited *inherited)
{
    for (unsigned i = 0; i < inherited->count; i++)
        if (inherited->sockets[i].fd >= 0)
            return &inherited->sockets[i];
    return NULL;
}

void inherited_clear(struct inherited *inherited)
{
    for (unsigned i = 0; i < inherited->count; i++) {
        if (inherited->sockets[i].fd >= 0)
            close(inherited->sockets[i].fd);
        free(inherited->sockets[i].name);
    }
    free(inherited->sockets);
    *inherited = (struct inherited){0};
}
