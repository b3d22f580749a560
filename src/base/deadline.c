#include "base/deadline.h"

#include "base/clock.h"

static void set_timer(struct deadlines *all, uint64_t at_us, uint64_t now_us)
{
    uint64_t after = at_us > now_us ? at_us - now_us : 0;
    struct timeval tv = {.tv_sec = (time_t)(after / 1000000), .tv_usec = (suseconds_t)(after % 1000000)};
    if (event_add(all->timer, &tv) == 0)
        all->timer_at_us = at_us;
}

static void timer_fired(evutil_socket_t fd, short what, void *arg)
{
    struct deadlines *all = arg;
    uint64_t now = clock_us(), earliest = UINT64_MAX;
    (void)fd, (void)what;

    all->timer_at_us = UINT64_MAX;
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
        set_timer(all, earliest, now);
}

int deadlines_init(struct deadlines *all, struct event_base *base)
{
    *all = (struct deadlines){.timer_at_us = UINT64_MAX};
    all->timer = evtimer_new(base, timer_fired, all);
    return all->timer ? 0 : -1;
}

void deadlines_clear(struct deadlines *all)
{
    if (all->timer)
        event_free(all->timer);
    all->timer = NULL;
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

void deadline_arm(struct deadline_queue *queue, struct deadline *deadline, uint64_t now_us, uint64_t after_us)
{
    struct deadline *before;

    deadline_cancel(deadline);
    deadline->at_us = now_us + after_us;
    deadline->queue = queue;
    /* Nearly always the last: lengths differ only after a reload or for a few special cases. */
    before = TAILQ_LAST(&queue->armed, deadline_list);
    while (before && before->at_us > deadline->at_us)
        before = TAILQ_PREV(before, deadline_list, link);
    if (before)
        TAILQ_INSERT_AFTER(&queue->armed, before, deadline, link);
    else
        TAILQ_INSERT_HEAD(&queue->armed, deadline, link);
    if (deadline->at_us < queue->all->timer_at_us)
        set_timer(queue->all, deadline->at_us, now_us);
}
