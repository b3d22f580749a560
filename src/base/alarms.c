#include "base/alarms.h"

#include <event2/event.h>
#include <stdlib.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/clock.h"

static void on_timer(evutil_socket_t fd, short what, void *arg);

/* ---- the heap: heap[1] is the earliest, heap[n] is before heap[2n] and heap[2n + 1] ------------------- */

static bool is_before(const struct alarm *a, const struct alarm *b)
{
    return a->at_us != b->at_us ? a->at_us < b->at_us : a->sequence < b->sequence;
}

static void put(struct alarms *all, unsigned place, struct alarm *alarm)
{
    all->heap[place] = alarm;
    alarm->place = place;
}

static void rise(struct alarms *all, unsigned place, struct alarm *alarm)
{
    for (; place > 1 && is_before(alarm, all->heap[place / 2]); place /= 2)
        put(all, place, all->heap[place / 2]);
    put(all, place, alarm);
}

static void sink(struct alarms *all, unsigned place, struct alarm *alarm)
{
    for (unsigned below; (below = 2 * place) <= all->count; place = below) {
        if (below < all->count && is_before(all->heap[below + 1], all->heap[below]))
            below++;
        if (!is_before(all->heap[below], alarm))
            break;
        put(all, place, all->heap[below]);
    }
    put(all, place, alarm);
}

static bool make_room(struct alarms *all)
{
    unsigned size = all->size ? 2 * all->size : 64;
    struct alarm **heap;

    if (all->count + 1 < all->size)
        return true;
    if (!(heap = realloc(all->heap, size * sizeof(struct alarm *))))
        return false;
    all->heap = heap;
    all->size = size;
    return true;
}

/* ---- the timer --------------------------------------------------------------------------------------- */

static bool open_timer(struct alarms *all)
{
    if (all->fd >= 0)
        return true;
    if ((all->fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)) < 0)
        return false;
    event_assign(&all->event, all->base, all->fd, EV_READ | EV_PERSIST, on_timer, all);
    event_add(&all->event, NULL);
    return true;
}

/* It may ring too early, after the earliest alarm was cancelled, but never too late. */
static void set_timer(struct alarms *all)
{
    uint64_t at = all->count ? all->heap[1]->at_us : UINT64_MAX;

    if (at >= all->timer_at_us)
        return;
    struct itimerspec when = {.it_value = {(time_t)(at / 1000000), (long)(at % 1000000 * 1000)}};
    if (at == 0)
        when.it_value.tv_nsec = 1; /* 0 would stop it */
    (void)timerfd_settime(all->fd, TFD_TIMER_ABSTIME, &when, NULL);
    all->timer_at_us = at;
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    struct alarms *all = arg;
    uint64_t rung, now;
    (void)what;

    if (read(fd, &rung, sizeof rung) < 0)
        return; /* set anew meanwhile */
    all->timer_at_us = UINT64_MAX;
    now = clock_read_us(CLOCK_MONOTONIC);
    while (all->count && all->heap[1]->at_us <= now) {
        struct alarm *alarm = all->heap[1];
        alarm_cancel(all, alarm);
        all->passed(alarm);
    }
    set_timer(all);
}

/* ---- alarms ------------------------------------------------------------------------------------------ */

void alarms_init(struct alarms *all, struct event_base *base, void (*passed)(struct alarm *))
{
    *all = (struct alarms){.base = base, .passed = passed, .timer_at_us = UINT64_MAX, .fd = -1};
}

void alarms_clear(struct alarms *all)
{
    while (all->count)
        alarm_cancel(all, all->heap[all->count]);
    if (all->base && all->fd >= 0) {
        event_del(&all->event);
        close(all->fd);
    }
    free(all->heap);
    alarms_init(all, NULL, NULL);
}

bool alarm_set(struct alarms *all, struct alarm *alarm, uint64_t at_us)
{
    if (!make_room(all) || !open_timer(all))
        return false;
    alarm->at_us = at_us;
    alarm->sequence = all->sequence++;
    rise(all, ++all->count, alarm);
    set_timer(all);
    return true;
}

void alarm_cancel(struct alarms *all, struct alarm *alarm)
{
    unsigned place = alarm->place;

    if (place == 0)
        return;
    struct alarm *last = all->heap[all->count--];
    alarm->place = 0;
    if (last == alarm)
        return;
    if (place > 1 && is_before(last, all->heap[place / 2]))
        rise(all, place, last);
    else
        sink(all, place, last);
}
