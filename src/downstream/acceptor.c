/* acceptor.c - a worker's listeners: accepts connections, within the limits of size_limits, and
 * opens or passes them on (handoff.h). */
#include "downstream/client.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/descriptors.h"
#include "base/log.h"
#include "downstream/handoff.h"
#include "downstream/peer_counts.h"
#include "downstream/socket_client.h"
#include "net/listener.h"
#include "policy/identity.h"
#include "proxy/worker_state.h"

enum {
    ACCEPTS_PER_ITERATION = 64, /* so that a connection flood does not starve open connections */
    ACCEPT_PAUSE_US = 100000,   /* pause in accepting when descriptors or slots are exhausted */
    EVICTED_AT_ONCE = 8,        /* clients evicted per shortage of descriptors */
    SPARED_US = 1000000,        /* clients are evicted if a shortage lasts for longer */
    CALM_US = 5000000,          /* shortages that follow sooner are one */
};

/* One listening socket of this worker. */
struct listener {
    struct worker *worker;
    unsigned index; /* index in the policy: a reload keeps the listeners and their order */
    int fd;
    struct event event, resume;
    bool paused;
};

static void listener_pause(struct listener *l)
{
    struct timeval pause = {.tv_usec = ACCEPT_PAUSE_US};
    l->paused = true;
    event_del(&l->event);
    event_add(&l->resume, &pause);
}

static void resume_accepting(evutil_socket_t fd, short what, void *arg)
{
    struct listener *l = arg;
    (void)fd, (void)what;
    l->paused = false;
    event_add(&l->event, NULL);
}

/* Frees descriptors, which refill the reserve first, and pauses accepting. At first, clients are
 * evicted only if the worker has no idle connection to a server. Later they always are: requests of
 * other clients open connections to servers again. */
static void wait_for_descriptors(struct listener *l)
{
    static _Thread_local uint64_t since_us, last_us;
    bool spares = upstream_worker_close_pooled(&l->worker->upstream);
    uint64_t now = clock_us();
    struct client *leaves;

    if (now - last_us > CALM_US)
        since_us = now;
    last_us = now;
    spares &= now - since_us < SPARED_US;
    for (unsigned n = 0;
         !spares && n < EVICTED_AT_ONCE && (leaves = client_to_evict(l->worker, false)); n++)
        client_evict(leaves);
    listener_pause(l);
}

/* The kernel has no descriptor or memory. weir waits, because retrying at once fails again. */
static void accept_failed(struct listener *l, int error)
{
    static _Thread_local uint64_t logged_us;
    uint64_t now = clock_us();

    if (descriptors_lack(error))
        descriptors_note_lack(error);
    else if (now - logged_us > 10000000) {
        logged_us = now;
        log_error("cannot accept connections: %s; trying again every 100 ms; check the memory and "
                  "the limits of the system",
                  strerror(error));
    }
    wait_for_descriptors(l);
}

/* Each worker has a share of size_limits.connections. If it is taken, a connection goes to a
 * worker with a free slot (handoff.h). If there is none, the worker evicts one of its own
 * connections. */
static bool slots_full(const struct worker *w)
{
    unsigned max = worker_connections_max(w);
    return max && atomic_load_explicit(&w->downstream->handoff.slots, memory_order_relaxed) >= max;
}

/* Returns whether the peer may connect. On a PROXY protocol listener the peer must be trusted;
 * its client is counted after the header is read. */
static bool may_connect(struct listener *l, const struct address *peer, bool *counted)
{
    struct worker *w = l->worker;
    const struct peer source = peer_of_address(peer);

    *counted = false;
    if (peer_may_ask(w, l->index, &source))
        return true;
    if (!w->policy->listen[l->index].proxy_protocol)
        return peer_count(w, peer, counted);
    if (identity_trusts(&w->policy->identity, &source))
        return true;
    counter_add(&w->stats.proxy_headers_refused, 1);
    return false;
}

/* Opens an accepted connection. Its slot was taken before, or is freed by evicting `leaves`. A
 * refused connection evicts nobody. */
static void admit(struct listener *l, int fd, const struct address *peer, struct client *leaves)
{
    struct worker *w = l->worker;
    bool counted;

    counter_add(&w->stats.connections_accepted, 1);
    if (!may_connect(l, peer, &counted)) {
        close(fd);
        if (!leaves)
            slot_free(w);
        return;
    }
    if (leaves) {
        slot_take_extra(w);
        client_evict(leaves);
    }
    socket_set_options(fd, peer);
    if (!socket_client_open(w, fd, peer, l->index, counted)) {
        counter_add(&w->stats.connections_refused, 1);
        slot_free(w);
        if (counted)
            peer_uncount(w, peer);
    }
}

void listeners_resume(struct worker *w)
{
    if (slots_full(w))
        return;
    w->downstream->slots_exhausted = false;
    for (unsigned i = 0; i < w->downstream->listener_count; i++) {
        struct listener *l = &w->downstream->listeners[i];
        if (!l->paused || l->fd < 0)
            continue;
        event_del(&l->resume);
        resume_accepting(-1, 0, l);
    }
}

/* Passes a connection to worker `to`, where a slot was taken. If `to` accepts no more, the
 * connection is served here if a slot is free. */
static void pass_to_worker(struct listener *l, struct worker *to, int fd,
                           const struct address *peer)
{
    struct handed connection = {fd, l->index, *peer};

    if (handoff_give(to, &connection))
        return;
    slot_free(to);
    if (slot_take_here(l->worker))
        admit(l, fd, peer, NULL);
    else {
        close(fd);
        counter_add(&l->worker->stats.connections_refused, 1);
    }
}

/* Accepts one connection. False: none waits, or none may be accepted now. */
static bool accept_one(struct listener *l)
{
    struct worker *w = l->worker, *to = slot_take(w);
    struct client *leaves = to ? NULL : client_to_evict(w, true);
    struct address peer = {.length = sizeof peer.local};

    if (!to && !leaves) {
        w->downstream->slots_exhausted = true;
        listener_pause(l); /* the connection waits in the kernel */
        return false;
    }
    int client = accept4(l->fd, &peer.any, &peer.length, SOCK_NONBLOCK | SOCK_CLOEXEC),
        error = errno;
    if (client >= 0 && to && to != w)
        pass_to_worker(l, to, client, &peer);
    else if (client >= 0)
        admit(l, client, &peer, leaves);
    if (client >= 0)
        return true;
    if (to)
        slot_free(to);
    if (error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM)
        accept_failed(l, error);
    else if (error != EAGAIN && error != EWOULDBLOCK)
        return true; /* that connection has failed: try the next one */
    return false;
}

/* Accepts at most `most` waiting connections. Nothing is evicted before a new connection was
 * accepted. */
static void accept_waiting(struct listener *l, unsigned most)
{
    while (most-- && accept_one(l))
        ;
}

void listeners_receive(struct worker *w)
{
    struct handed connection;

    while (handoff_receive(w, &connection))
        admit(&w->downstream->listeners[connection.listener], connection.fd, &connection.peer,
              NULL);
}

static void on_accept(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    if (descriptors_are_scarce())
        wait_for_descriptors(arg);
    else
        accept_waiting(arg, ACCEPTS_PER_ITERATION);
}

/* Closing a SO_REUSEPORT listener resets the connections in its queue, so they are accepted first.
 * The queue of an inherited socket is left to the next process. */
void listeners_close(struct worker *w)
{
    w->downstream->listeners_closed = true;
    handoff_close(w);
    listeners_receive(w);
    for (unsigned i = 0; i < w->downstream->listener_count; i++) {
        struct listener *l = &w->downstream->listeners[i];
        if (l->fd < 0)
            continue;
        if (!w->shared->inherited[i])
            accept_waiting(l, LISTENER_BACKLOG);
        event_del(&l->event);
        event_del(&l->resume);
        close(l->fd);
        l->fd = -1;
    }
}

/* ---- start and end --------------------------------------------------------------------------- */

bool listeners_init(struct worker *w, const int *fds)
{
    unsigned count = w->policy->listen_count;

    if (!(w->downstream->listeners = calloc(count ? count : 1, sizeof *w->downstream->listeners)))
        return false;
    w->downstream->listener_count = count;
    for (unsigned i = 0; i < count; i++) {
        struct listener *l = &w->downstream->listeners[i];
        l->worker = w;
        l->index = i;
        l->fd = fds[i];
        event_assign(&l->event, w->base, l->fd, EV_READ | EV_PERSIST, on_accept, l);
        evtimer_assign(&l->resume, w->base, resume_accepting, l);
    }
    return true;
}

void listeners_start(struct worker *w)
{
    for (unsigned i = 0; i < w->downstream->listener_count; i++)
        if (w->downstream->listeners[i].fd >= 0)
            event_add(&w->downstream->listeners[i].event, NULL);
    handoff_open(w);
}

void listeners_free(struct worker *w)
{
    for (unsigned i = 0; w->downstream->listeners && i < w->downstream->listener_count; i++)
        if (w->downstream->listeners[i].fd >= 0) {
            event_del(&w->downstream->listeners[i].event);
            event_del(&w->downstream->listeners[i].resume);
            close(w->downstream->listeners[i].fd);
        }
    free(w->downstream->listeners);
}
