/* poller.h - reports which of many sockets are readable or writable, a batch at a time.
 *
 * libevent takes up to 4,096 ready sockets from one epoll_wait(2). A loop iteration is too short to serve so many. The
 * sockets that are left are reported again by the next epoll_wait, and again by each one until they are served:
 * with 4,000 busy connections, 24 reports for each read. A poller therefore owns an epoll instance, asks it for one batch, and
 * asks for the next one when that batch is served, in however many loop iterations. The kernel returns ready sockets in turn, so
 * none is served twice while another waits. The epoll instance is itself one event in the event base: Redis, timers
 * and listeners wait for one batch, never for all sockets.
 *
 * Events are level-triggered: a socket that was reported and not read is reported again with the next batches. */
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

/* One socket. Embedded in its owner, whose memory outlives the callback in which it ends the watch. */
struct watch {
    struct poller *poller; /* NULL: not begun, or ended */
    int fd;
    uint32_t wanted; /* EPOLLIN, EPOLLOUT, EPOLLRDHUP: registered with the kernel */
    bool woken;
    bool
        for_end; /* set by the owner before watch_want(): where nothing is read, the peer's FIN or reset is reported with EV_CLOSED */
    event_callback_fn on_readable,
        on_writable; /* called with fd, EV_READ (EV_CLOSED) or EV_WRITE, and context */
    void *context;
    TAILQ_ENTRY(watch) link; /* woken: in poller->woken */
};

struct poller {
    int fd;             /* the epoll instance; -1: none */
    struct event event; /* of it, in the event base */
    unsigned batch;     /* sockets per epoll_wait */
    bool stopped;
    unsigned next,
        count; /* ready[next .. count) was reported and is not served yet; data.ptr: a watch, NULL: ended */
    struct epoll_event ready[POLLER_BATCH_MAX];
    TAILQ_HEAD(woken, watch) woken;
    unsigned woken_count, woken_due; /* of them: still to be served in this round */
};

/* Adds the poller to `base`, which must outlive it. `batch`: 1 to POLLER_BATCH_MAX sockets per epoll_wait. -1 with errno. */
MUST_CHECK int poller_init(struct poller *poller, struct event_base *base, unsigned batch);
/* After all its watches ended. May be called twice, or without poller_init() on zeroed memory. */
void poller_clear(struct poller *poller);
/* Serves no more sockets after the callback that is running, until the event base runs the poller again: the
 * loop iteration has lasted long enough. */
void poller_stop(struct poller *poller);

/* Begins to watch `fd`; nothing is wanted yet. The callbacks and the context are set by the caller. */
void watch_begin(struct watch *watch, struct poller *poller, int fd);
/* Sets what is waited for. Failure (no memory, fs.epoll.max_user_watches) is logged; the owner's timeouts then end the connection. */
void watch_want(struct watch *watch, bool readable, bool writable);
/* Runs on_readable in this loop iteration or the next one, whatever the socket holds. */
void watch_wake(struct watch *watch);
void watch_cancel_wake(struct watch *watch);
/* Ends it, before the socket is closed: no callback runs afterwards. May be called twice. */
void watch_end(struct watch *watch);

#endif
