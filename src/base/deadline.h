/* deadline.h - thousands of deadlines on one timer.
 *
 * The deadlines of a queue have few different lengths, such as the response_timeout of each
 * upstream. So a queue consists of a few sorted lists, and a deadline is appended to the first one
 * that stays sorted: arming is O(1) for up to DEADLINE_LISTS lengths, without a system call. One
 * timerfd fires at the earliest deadline of all queues. It is only set again for an earlier
 * deadline, so requests that finish in time cost nothing. libevent's own timers can be 4 ms late:
 * they use CLOCK_MONOTONIC_COARSE. */
#ifndef WEIR_BASE_DEADLINE_H
#define WEIR_BASE_DEADLINE_H

#include <event2/event.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

enum { DEADLINE_LISTS = 8 };

struct deadline_queue;

TAILQ_HEAD(deadline_list, deadline);

struct deadline {
    TAILQ_ENTRY(deadline) link;
    struct deadline_queue *queue; /* NULL: not armed */
    struct deadline_list *list;   /* the one of the queue that has it */
    uint64_t at_us;               /* monotonic */
};

struct deadline_queue {
    struct deadline_list armed[DEADLINE_LISTS]; /* each earliest first */
    struct deadlines *all;
    struct deadline_queue *next;
    /* Called once, after the deadline is disarmed. May arm and free any deadline. */
    void (*passed)(struct deadline *deadline);
};

/* One worker's queues and its timer. */
struct deadlines {
    struct event *timer;
    int fd;               /* -1: no descriptor was available; `timer` is a libevent timer */
    uint64_t timer_at_us; /* UINT64_MAX: not pending */
    struct deadline_queue *queues;
    /* NULL, or called when deadlines are due, before they pass. May cancel and arm any deadline. */
    void (*before)(void *context);
    void *context;
};

/* Returns -1 if out of memory. */
int deadlines_init(struct deadlines *all, struct event_base *base);
void deadlines_clear(struct deadlines *all);
void deadline_queue_init(struct deadlines *all, struct deadline_queue *queue,
                         void (*passed)(struct deadline *));

/* Returns the earliest armed deadline of the queue, or NULL. */
struct deadline *deadline_first(const struct deadline_queue *queue);

/* Arms or moves `deadline` to `now_us` + `after_us`. */
void deadline_arm(struct deadline_queue *queue, struct deadline *deadline, uint64_t now_us,
                  uint64_t after_us);

/* Runs all due deadlines now, for a loop that was busy for a while. Must not be called from
 * `passed`. */
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
    TAILQ_REMOVE(deadline->list, deadline, link);
    deadline->queue = NULL;
}

#endif
