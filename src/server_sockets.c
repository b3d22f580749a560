/* server_sockets.c - listening sockets: opened here, or received from systemd (net/inherited.h).
 *
 * A socket that weir opens is one per worker (SO_REUSEPORT). A socket from systemd exists once and
 * outlives the process: up to INHERITED_ACCEPTORS workers accept from duplicates of its
 * descriptor, and pass connections on to the others (downstream/handoff.h). All of them wake for
 * each connection, so their number is bounded. A second socket on its port (SO_REUSEPORT) would be
 * reset, with the connections in its queue, when the process ends. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"
#include "net/inherited.h"
#include "net/listener.h"
#include "server_internal.h"

enum { INHERITED_ACCEPTORS = 4 };

/* Distributes duplicates of an inherited socket to consecutive workers, beginning with another
 * worker for each address. The other workers get -1. Takes over `fd`. */
static bool share_inherited(struct weir *weir, unsigned address, int fd)
{
    unsigned workers = weir->first->workers, addresses = weir->first->listen_count;
    unsigned acceptors = workers < INHERITED_ACCEPTORS ? workers : INHERITED_ACCEPTORS;

    for (unsigned i = 0; i < workers; i++) {
        int *own = &weir->listen_fds[(address + i) % workers * addresses + address];
        *own = i == 0 ? fd : i < acceptors ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : -1;
        if (i < acceptors && *own < 0)
            return false;
    }
    weir->inherited[address] = true;
    return true;
}

static bool open_own(struct weir *weir, unsigned a, const char **why)
{
    unsigned workers = weir->first->workers, addresses = weir->first->listen_count;
    int *fds = xcalloc(workers, sizeof *fds);
    bool good = listener_open(&weir->first->listen[a].address, workers, fds, why);

    for (unsigned w = 0; w < workers && good; w++)
        weir->listen_fds[w * addresses + a] = fds[w];
    free(fds);
    return good;
}

static bool open_client_socket(struct weir *weir, struct inherited *inherited, unsigned a)
{
    struct address *address = &weir->first->listen[a].address;
    const char *why = "fcntl";
    char name[32], text[ADDRESS_TEXT_MAX];

    snprintf(name, sizeof name, "listen-%u", a + 1);
    int fd = inherited_take(inherited, name, address);
    bool good = fd >= 0 ? share_inherited(weir, a, fd) : open_own(weir, a, &why);
    if (!good)
        log_error("cannot listen on %s: %s: %s%s", address_format(address, text), why,
                  strerror(errno), listener_remedy(errno));
    return good;
}

/* Connections to a socket that nobody serves would wait without end, so weir does not start. */
static bool all_are_taken(const struct inherited *inherited)
{
    const struct inherited_socket *left = inherited_left(inherited);
    char text[ADDRESS_TEXT_MAX];

    if (left)
        log_error("systemd passes a socket for %s (%s), which no listener of the policy has; make "
                  "ListenStream= of the socket unit and the policy agree",
                  address_format(&left->address, text), left->name);
    return !left;
}

static bool open_all(struct weir *weir, struct inherited *inherited)
{
    for (; weir->opened < weir->first->listen_count; weir->opened++)
        if (!open_client_socket(weir, inherited, weir->opened))
            return false;
    return open_admin(weir, inherited) && all_are_taken(inherited);
}

bool open_listeners(struct weir *weir)
{
    struct policy *policy = weir->first;
    unsigned addresses = policy->listen_count, count = policy->workers * addresses;
    struct inherited inherited;
    const char *why;

    weir->written = xcalloc(addresses, sizeof *weir->written);
    memcpy(weir->written, policy->listen, addresses * sizeof *weir->written);
    weir->inherited = xcalloc(addresses, sizeof *weir->inherited);
    weir->listen_fds = xcalloc(count, sizeof *weir->listen_fds);
    for (unsigned i = 0; i < count; i++)
        weir->listen_fds[i] = -1;
    bool good = inherited_receive(&inherited, &why);
    if (!good)
        log_error("the sockets from systemd cannot be used: %s", why);
    good = good && open_all(weir, &inherited);
    inherited_clear(&inherited);
    return good;
}

void report_listening(const struct weir *weir)
{
    char text[ADDRESS_TEXT_MAX];
    unsigned inherited = 0;

    for (unsigned a = 0; a < weir->first->listen_count; a++) {
        log_info("listening on %s%s", address_format(&weir->first->listen[a].address, text),
                 weir->first->listen[a].decides         ? " (decisions)"
                 : weir->first->listen[a].serves_limits ? " (rate limit service)"
                                                        : "");
        inherited += weir->inherited[a];
    }
    inherited += report_admin(weir);
    if (inherited)
        log_info("%u of these sockets %s from systemd", inherited, inherited == 1 ? "is" : "are");
}

void unlink_sockets(struct weir *weir)
{
    for (unsigned a = 0; a < weir->opened && !weir->unlinked; a++)
        if (!weir->inherited[a])
            listener_unlink(&weir->first->listen[a].address);
    if (!weir->unlinked)
        unlink_admin(weir);
    weir->unlinked = true;
}

void close_unused_listeners(struct weir *weir)
{
    const struct policy *first = weir->first;

    unlink_sockets(weir);
    for (unsigned a = 0; weir->listen_fds && a < first->listen_count; a++)
        for (unsigned w = weir->made; w < first->workers; w++)
            if (weir->listen_fds[w * first->listen_count + a] >= 0)
                close(weir->listen_fds[w * first->listen_count + a]);
}
