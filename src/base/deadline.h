/* deadline.h - thousands of deadlines on one timer.
 *
 * All deadlines of one queue have the same length as a rule, so a queue is a list in order of time: arming is
 * O(1), and no system or event-loop call is made for it. One timerfd wakes for the earliest
 * of all queues; it is only ever moved forward when armed for something earlier, so requests that finish in
 * time cost it nothing. libevent's own timers go by a clock that ticks every 4 ms (CLOCK_MONOTONIC_COARSE), and would be as late. */
#ifndef WEIR_BASE_DEADLINE_H
#define WEIR_BASE_DEADLINE_H

#include <event2/event.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

struct deadline_queue;

struct deadline {
    TAILQ_ENTRY(deadline) link;
    struct deadline_queue *queue; /* NULL: not armed */
    uint64_t at_us;               /* monotonic */
};

struct deadline_queue {
    TAILQ_HEAD(deadline_list, deadline) armed; /* earliest first */
    struct deadlines *all;
    struct deadline_queue *next;
    void (*passed)(
        struct deadline *deadline); /* runs once, with the deadline disarmed; may arm and free anything */
};

/* One worker's queues and its timer. */
struct deadlines {
    struct event *timer;
    int fd;               /* -1: there was no descriptor for it, and the timer is one of libevent's */
    uint64_t timer_at_us; /* UINT64_MAX: not pending */
    struct deadline_queue *queues;
    void (*before)(
        void *context); /* NULL, or: runs when some are due and before they pass; may cancel and arm any */
    void *context;
};

/* -1 when there is no memory. */
int deadlines_init(struct deadlines *all, struct event_base *base);
void deadlines_clear(struct deadlines *all);
void deadline_queue_init(struct deadlines *all, struct deadline_queue *queue,
                         void (*passed)(struct deadline *));

/* Arms, or moves, `deadline` to `after_us` from `now_us`. */
void deadline_arm(struct deadline_queue *queue, struct deadline *deadline, uint64_t now_us,
                  uint64_t after_us);

/* Those that are due pass now: for a loop that was busy for a while. Not from inside a `passed`. */
void deadlines_pass(struct deadlines *all);

static inline bool deadlines_are_due(const struct deadlines *all, uint64_t now_us)
{
    return now_us >= all->timer_at_us;
}

static inline bool deadline_is_armed(const struct deadline *deadline)
{
    return deadline->queue != NULL;
}

static inline void deadline_cancel(struct deadline *deadline)
{
    if (!deadline->queue)
        return;
    TAILQ_REMOVE(&deadline->queue->armed, deadline, link);
    deadline->queue = NULL;
}

#endif
