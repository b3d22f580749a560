#include "base/timer_heap.h"

#include <event2/event.h>
#include <stdlib.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/clock.h"

static void on_timerfd(evutil_socket_t fd, short what, void *arg);

/* ---- the heap: heap[1] is the earliest, heap[n] is before heap[2n] and heap[2n + 1] ---------- */

static bool is_earlier(const struct timer *a, const struct timer *b)
{
    return a->at_us != b->at_us ? a->at_us < b->at_us : a->sequence < b->sequence;
}

static void heap_set(struct timer_heap *all, unsigned position, struct timer *timer)
{
    all->heap[position] = timer;
    timer->position = position;
}

static void rise(struct timer_heap *all, unsigned position, struct timer *timer)
{
    for (; position > 1 && is_earlier(timer, all->heap[position / 2]); position /= 2)
        heap_set(all, position, all->heap[position / 2]);
    heap_set(all, position, timer);
}

static void sink(struct timer_heap *all, unsigned position, struct timer *timer)
{
    for (unsigned below; (below = 2 * position) <= all->count; position = below) {
        if (below < all->count && is_earlier(all->heap[below + 1], all->heap[below]))
            below++;
        if (!is_earlier(all->heap[below], timer))
            break;
        heap_set(all, position, all->heap[below]);
    }
    heap_set(all, position, timer);
}

static bool grow_heap(struct timer_heap *all)
{
    unsigned size = all->size ? 2 * all->size : 64;
    struct timer **heap;

    if (all->count + 1 < all->size)
        return true;
    if (!(heap = realloc(all->heap, size * sizeof(struct timer *))))
        return false;
    all->heap = heap;
    all->size = size;
    return true;
}

/* ---- the timerfd ----------------------------------------------------------------------------- */

static bool open_timer(struct timer_heap *all)
{
    if (all->fd >= 0)
        return true;
    if ((all->fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)) < 0)
        return false;
    event_assign(&all->event, all->base, all->fd, EV_READ | EV_PERSIST, on_timerfd, all);
    event_add(&all->event, NULL);
    return true;
}

/* The timerfd may fire too early, after the earliest timer was cancelled, but never too late. */
static void set_heap_timer(struct timer_heap *all)
{
    uint64_t at = all->count ? all->heap[1]->at_us : UINT64_MAX;

    if (at >= all->timer_at_us)
        return;
    /* one nanosecond more, since 0 would disarm the timer */
    const struct itimerspec when = {
        .it_value = {(time_t)(at / 1000000), (long)(at % 1000000 * 1000) | 1}};
    (void)timerfd_settime(all->fd, TFD_TIMER_ABSTIME, &when, NULL);
    all->timer_at_us = at;
}

static void on_timerfd(evutil_socket_t fd, short what, void *arg)
{
    struct timer_heap *all = arg;
    uint64_t rung, now;
    (void)what;

    if (read(fd, &rung, sizeof rung) < 0)
        return; /* the timer was set again in the meantime */
    all->timer_at_us = UINT64_MAX;
    now = clock_read_us(CLOCK_MONOTONIC);
    while (all->count && all->heap[1]->at_us <= now) {
        struct timer *timer = all->heap[1];
        timer_cancel(all, timer);
        all->passed(timer);
    }
    set_heap_timer(all);
}

/* ---- timers ---------------------------------------------------------------------------------- */

void timer_heap_init(struct timer_heap *all, struct event_base *base,
                     void (*passed)(struct timer *))
{
    *all = (struct timer_heap){.base = base, .passed = passed, .timer_at_us = UINT64_MAX, .fd = -1};
}

void timer_heap_clear(struct timer_heap *all)
{
    while (all->count)
        timer_cancel(all, all->heap[all->count]);
    if (all->base && all->fd >= 0) {
        event_del(&all->event);
        close(all->fd);
    }
    free(all->heap);
    timer_heap_init(all, NULL, NULL);
}

bool timer_set(struct timer_heap *all, struct timer *timer, uint64_t at_us)
{
    if (!grow_heap(all) || !open_timer(all))
        return false;
    timer->at_us = at_us;
    timer->sequence = all->sequence++;
    rise(all, ++all->count, timer);
    set_heap_timer(all);
    return true;
}

void timer_cancel(struct timer_heap *all, struct timer *timer)
{
    unsigned position = timer->position;

    if (position == 0)
        return;
    struct timer *last = all->heap[all->count--];
    timer->position = 0;
    if (last == timer)
        return;
    if (position > 1 && is_earlier(last, all->heap[position / 2]))
        rise(all, position, last);
    else
        sink(all, position, last);
}
