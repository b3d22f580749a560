/* poller.h - reports which sockets are readable or writable, in batches.
 *
 * libevent fetches up to 4,096 ready sockets with one epoll_wait(2), more than one short loop
 * iteration can serve. Unserved sockets would be reported again by each epoll_wait: with 4,000 busy
 * connections, 24 reports per read.
 *
 * A poller therefore owns an epoll instance and fetches one batch. It fetches the next batch when
 * that one is served, which may take several loop iterations. The kernel returns ready sockets in
 * turn, so none is served twice while another waits. The epoll instance is one event in the event
 * base: Redis, timers and listeners wait for one batch, not for all sockets.
 *
 * Events are level-triggered: a reported socket that was not read is reported again. */
#ifndef WEIR_NET_POLLER_H
#define WEIR_NET_POLLER_H

#include <event2/event.h>
#include <event2/event_struct.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/queue.h>

#include "base/macros.h"

enum { POLLER_BATCH_MAX = 256 };

/* One socket. Embedded in its owner, whose memory must outlive the callback that ends the watch. */
struct watch {
    struct poller *poller; /* NULL: not started, or ended */
    int fd;
    uint32_t wanted; /* events registered with the kernel: EPOLLIN, EPOLLOUT, EPOLLRDHUP */
    bool woken;
    /* Set by the owner before watch_want(). If reading is not wanted, the peer's FIN or reset is
     * reported with EV_CLOSED. */
    bool for_end;
    /* Called with the fd, EV_READ (or EV_CLOSED) or EV_WRITE, and `context`. */
    event_callback_fn on_readable, on_writable;
    void *context;
    TAILQ_ENTRY(watch) link; /* in poller->woken, if woken */
};

struct poller {
    int fd;             /* the epoll instance; -1: none */
    struct event event; /* the epoll instance's event in the event base */
    unsigned batch;     /* sockets per epoll_wait */
    bool stopped;
    /* ready[next .. count) was reported and is not served yet. data.ptr: a watch, or NULL if it
     * has ended. */
    unsigned next, count;
    struct epoll_event ready[POLLER_BATCH_MAX];
    TAILQ_HEAD(woken, watch) woken;
    unsigned woken_count, woken_due; /* woken_due: those still to be served in this round */
};

/* Adds the poller to `base`, which must outlive it. `batch`: sockets per epoll_wait, 1 to
 * POLLER_BATCH_MAX. Returns -1 with errno on failure. */
MUST_CHECK int poller_init(struct poller *poller, struct event_base *base, unsigned batch);
/* Call after all watches have ended. May be called twice, or on zeroed memory. */
void poller_clear(struct poller *poller);
/* Stops serving sockets after the running callback, until the event base runs the poller again.
 * Used to end a long loop iteration. */
void poller_stop(struct poller *poller);

/* Starts watching `fd`, without waiting for events yet. The caller sets the callbacks and the
 * context. */
void watch_begin(struct watch *watch, struct poller *poller, int fd);
/* Sets the events to wait for. Errors (no memory, fs.epoll.max_user_watches) are logged; the
 * owner's timeouts then close the connection. */
void watch_want(struct watch *watch, bool readable, bool writable);
/* Calls on_readable in this loop iteration or the next, even if the socket has no data. */
void watch_wake(struct watch *watch);
void watch_cancel_wake(struct watch *watch);
/* Ends the watch; call before closing the socket. No callback runs afterwards. May be called
 * twice. */
void watch_end(struct watch *watch);

#endif
