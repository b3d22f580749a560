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

struct deadline *deadline_first(const struct deadline_queue *queue)
{
    struct deadline *first = NULL;

    for (unsigned i = 0; i < DEADLINE_LISTS; i++) {
        struct deadline *d = TAILQ_FIRST(&queue->armed[i]);
        if (d && (!first || d->at_us < first->at_us))
            first = d;
    }
    return first;
}

static struct deadline *first_due(const struct deadline_queue *queue, uint64_t now)
{
    struct deadline *first = deadline_first(queue);

    return first && first->at_us <= now ? first : NULL;
}

static bool any_is_due(const struct deadlines *all, uint64_t now)
{
    for (const struct deadline_queue *q = all->queues; q; q = q->next)
        if (first_due(q, now))
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
        while ((d = first_due(q, now))) {
            deadline_cancel(d);
            q->passed(d);
        }
    }
    for (struct deadline_queue *q = all->queues; q; q = q->next) {
        const struct deadline *d = deadline_first(q);
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
    for (unsigned i = 0; i < DEADLINE_LISTS; i++)
        TAILQ_INIT(&queue->armed[i]);
    queue->all = all;
    queue->passed = passed;
    queue->next = all->queues;
    all->queues = queue;
}

/* Appends the deadline to the first list that has no later one. Returns false if all have. */
static inline bool append(struct deadline_queue *queue, struct deadline *deadline)
{
    for (unsigned i = 0; i < DEADLINE_LISTS; i++) {
        struct deadline_list *list = &queue->armed[i];
        const struct deadline *last = TAILQ_LAST(list, deadline_list);
        if (last && last->at_us > deadline->at_us)
            continue;
        deadline->list = list;
        TAILQ_INSERT_TAIL(list, deadline, link);
        return true;
    }
    return false;
}

/* Inserts the deadline in the last list. */
static void insert(struct deadline_queue *queue, struct deadline *deadline)
{
    struct deadline *before = TAILQ_LAST(&queue->armed[DEADLINE_LISTS - 1], deadline_list);

    deadline->list = &queue->armed[DEADLINE_LISTS - 1];
    while (before && before->at_us > deadline->at_us)
        before = TAILQ_PREV(before, deadline_list, link);
    if (before)
        TAILQ_INSERT_AFTER(deadline->list, before, deadline, link);
    else
        TAILQ_INSERT_HEAD(deadline->list, deadline, link);
}

void deadline_arm(struct deadline_queue *queue, struct deadline *deadline, uint64_t now_us,
                  uint64_t after_us)
{
    deadline_cancel(deadline);
    deadline->at_us = now_us + after_us;
    deadline->queue = queue;
    if (!append(queue, deadline))
        insert(queue, deadline);
    if (deadline->at_us < queue->all->timer_at_us)
        set_deadline_timer(queue->all, deadline->at_us, now_us);
}
