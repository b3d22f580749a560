#include "base/deadline.h"

#include <sys/timerfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/event_timer.h"

static void set_deadline_timer(struct deadlines *all, uint64_t at_us, uint64_t now_us)
{
    uint64_t after = at_us > now_us ? at_us - now_us : 0;
    struct timeval tv = timeval_of_us(after);
    /* one nanosecond more, since 0 would disarm the timer */
    const struct itimerspec at = {
        .it_value = {(time_t)(at_us / 1000000), (long)(at_us % 1000000 * 1000) | 1}};

    if (all->fd >= 0 ? timerfd_settime(all->fd, TFD_TIMER_ABSTIME, &at, NULL) == 0
                     : event_add(all->timer, &tv) == 0)
        all->timer_at_us = at_us;
}

static bool any_is_due(const struct deadlines *all, uint64_t now)
{
    for (const struct deadline_queue *q = all->queues; q; q = q->next)
        if (!TAILQ_EMPTY(&q->armed) && TAILQ_FIRST(&q->armed)->at_us <= now)
            return true;
    return false;
}

void deadlines_pass(struct deadlines *all)
{
    uint64_t now = clock_us(), earliest = UINT64_MAX;

    all->timer_at_us = UINT64_MAX;
    if (all->before && any_is_due(all, now))
        all->before(all->context);
    for (struct deadline_queue *q = all->queues; q; q = q->next) {
        struct deadline *d;
        while ((d = TAILQ_FIRST(&q->armed)) && d->at_us <= now) {
            deadline_cancel(d);
            q->passed(d);
        }
    }
    for (struct deadline_queue *q = all->queues; q; q = q->next) {
        struct deadline *d = TAILQ_FIRST(&q->armed);
        if (d && d->at_us < earliest)
            earliest = d->at_us;
    }
    if (earliest < all->timer_at_us)
        set_deadline_timer(all, earliest, now);
}

static void timer_fired(evutil_socket_t fd, short what, void *arg)
{
    uint64_t rung;

    if ((what & EV_READ) && read(fd, &rung, sizeof rung) < 0)
        return; /* the timer was set again in the meantime */
    deadlines_pass(arg);
}

int deadlines_init(struct deadlines *all, struct event_base *base)
{
    *all = (struct deadlines){.timer_at_us = UINT64_MAX};
    all->fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    all->timer =
        event_new(base, all->fd, all->fd >= 0 ? EV_READ | EV_PERSIST : 0, timer_fired, all);
    if (all->timer && (all->fd < 0 || event_add(all->timer, NULL) == 0))
        return 0;
    event_drop(all->timer);
    all->timer = NULL;
    if (all->fd >= 0)
        close(all->fd);
    return -1;
}

void deadlines_clear(struct deadlines *all)
{
    if (!all->timer)
        return;
    event_free(all->timer);
    all->timer = NULL;
    if (all->fd >= 0)
        close(all->fd);
}

void deadline_queue_init(struct deadlines *all, struct deadline_queue *queue,
                         void (*passed)(struct deadline *))
{
    TAILQ_INIT(&queue->armed);
    queue->all = all;
    queue->passed = passed;
    queue->next = all->queues;
    all->queues = queue;
}

void deadline_arm(struct deadline_queue *queue, struct deadline *deadline, uint64_t now_us,
                  uint64_t after_us)
{
    struct deadline *before;

    deadline_cancel(deadline);
    deadline->at_us = now_us + after_us;
    deadline->queue = queue;
    /* Nearly always inserted last: lengths differ only after a reload and in a few special
     * cases. */
    before = TAILQ_LAST(&queue->armed, deadline_list);
    while (before && before->at_us > deadline->at_us)
        before = TAILQ_PREV(before, deadline_list, link);
    if (before)
        TAILQ_INSERT_AFTER(&queue->armed, before, deadline, link);
    else
        TAILQ_INSERT_HEAD(&queue->armed, deadline, link);
    if (deadline->at_us < queue->all->timer_at_us)
        set_deadline_timer(queue->all, deadline->at_us, now_us);
}
