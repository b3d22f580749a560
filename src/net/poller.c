#include "net/poller.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"

/* ---- a batch --------------------------------------------------------------------------------- */

/* An error or a reset is reported as every wanted event: the next read or write then fails. */
static void watch_deliver(struct watch *watch, uint32_t reported)
{
    if (reported & (EPOLLERR | EPOLLHUP))
        reported |= EPOLLIN | EPOLLOUT | EPOLLRDHUP;
    reported &= watch->wanted;
    if (reported & EPOLLIN)
        watch->on_readable(watch->fd, EV_READ, watch->context);
    else if (reported & EPOLLRDHUP)
        watch->on_readable(watch->fd, EV_CLOSED, watch->context);
    if ((reported & EPOLLOUT) && watch->poller && (watch->wanted & EPOLLOUT))
        watch->on_writable(watch->fd, EV_WRITE, watch->context);
}

static void serve_reported(struct poller *poller)
{
    while (poller->next < poller->count && !poller->stopped) {
        const struct epoll_event *event = &poller->ready[poller->next++];
        if (event->data.ptr)
            watch_deliver(event->data.ptr, event->events);
    }
}

/* Serves at most as many watches as were woken before the round, so that a callback that wakes its
 * own socket does not starve others. */
static void serve_woken(struct poller *poller)
{
    struct watch *watch;

    while (poller->woken_due && !poller->stopped) {
        poller->woken_due--;
        if (!(watch = TAILQ_FIRST(&poller->woken)))
            continue;
        watch_cancel_wake(watch);
        watch->on_readable(watch->fd, EV_READ, watch->context);
    }
}

static void fetch_batch(struct poller *poller)
{
    int count = epoll_wait(poller->fd, poller->ready, (int)poller->batch, 0);

    poller->next = 0;
    poller->count = count > 0 ? (unsigned)count : 0;
}

/* Activates the event if work is left. The kernel reports ready sockets to the base, but not those
 * already fetched or woken. */
static void come_again(struct poller *poller)
{
    if (poller->next < poller->count || !TAILQ_EMPTY(&poller->woken))
        event_active(&poller->event, EV_READ, 0);
}

/* Serves rounds: a batch of reported sockets, then at most as many woken ones. A stopped round is
 * resumed later, so neither kind starves the other. */
static void serve_batch(evutil_socket_t fd, short what, void *arg)
{
    struct poller *poller = arg;
    (void)fd, (void)what;

    poller->stopped = false;
    if (poller->next == poller->count && poller->woken_due == 0) {
        poller->woken_due =
            poller->woken_count < poller->batch ? poller->woken_count : poller->batch;
        fetch_batch(poller);
    }
    serve_reported(poller);
    serve_woken(poller);
    come_again(poller);
}

int poller_init(struct poller *poller, struct event_base *base, unsigned batch)
{
    poller->batch = batch < POLLER_BATCH_MAX ? batch : POLLER_BATCH_MAX;
    poller->next = poller->count = 0;
    poller->stopped = false;
    TAILQ_INIT(&poller->woken);
    poller->woken_count = poller->woken_due = 0;
    if ((poller->fd = epoll_create1(EPOLL_CLOEXEC)) < 0)
        return -1;
    event_assign(&poller->event, base, poller->fd, EV_READ | EV_PERSIST, serve_batch, poller);
    if (event_add(&poller->event, NULL) == 0)
        return 0;
    close(poller->fd);
    poller->fd = -1;
    errno = ENOMEM;
    return -1;
}

void poller_clear(struct poller *poller)
{
    if (!poller->batch || poller->fd < 0)
        return;
    event_del(&poller->event);
    close(poller->fd);
    poller->fd = -1;
}

void poller_stop(struct poller *poller)
{
    poller->stopped = true;
}

/* ---- one socket ------------------------------------------------------------------------------ */

void watch_begin(struct watch *watch, struct poller *poller, int fd)
{
    watch->poller = poller;
    watch->fd = fd;
    watch->wanted = 0;
    watch->woken = watch->for_end = false;
}

static void report_failed(void)
{
    static _Thread_local uint64_t logged_us;
    uint64_t now = clock_us();

    if (logged_us && now - logged_us < 10000000)
        return;
    logged_us = now;
    log_error("cannot watch a connection: %s; it waits for its timeout; raise the sysctl "
              "fs.epoll.max_user_watches, or free memory",
              strerror(errno));
}

void watch_want(struct watch *watch, bool readable, bool writable)
{
    uint32_t wanted = (readable         ? (uint32_t)EPOLLIN
                       : watch->for_end ? (uint32_t)EPOLLRDHUP
                                        : 0) |
                      (writable ? (uint32_t)EPOLLOUT : 0);
    struct epoll_event event = {.events = wanted, .data.ptr = watch};
    int operation = !wanted ? EPOLL_CTL_DEL : watch->wanted ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;

    if (!watch->poller || wanted == watch->wanted)
        return;
    if (epoll_ctl(watch->poller->fd, operation, watch->fd, &event) == 0)
        watch->wanted = wanted;
    else
        report_failed();
}

void watch_wake(struct watch *watch)
{
    struct poller *poller = watch->poller;

    if (!poller || watch->woken)
        return;
    watch->woken = true;
    TAILQ_INSERT_TAIL(&poller->woken, watch, link);
    poller->woken_count++;
    event_active(&poller->event, EV_READ, 0);
}

void watch_cancel_wake(struct watch *watch)
{
    if (!watch->woken)
        return;
    watch->woken = false;
    TAILQ_REMOVE(&watch->poller->woken, watch, link);
    watch->poller->woken_count--;
}

/* The current batch may still contain the watch. The socket is removed from the epoll instance
 * explicitly: closing it is not enough while a forked child process has a copy. */
void watch_end(struct watch *watch)
{
    struct poller *poller = watch->poller;

    if (!poller)
        return;
    watch_cancel_wake(watch);
    watch->for_end = false;
    watch_want(watch, false, false);
    for (unsigned i = poller->next; i < poller->count; i++)
        if (poller->ready[i].data.ptr == watch)
            poller->ready[i].data.ptr = NULL;
    watch->poller = NULL;
}
