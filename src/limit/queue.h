/* queue.h - the ops on their way to Redis: those that are gathered for the next call, and the
 * number of those that wait for a reply. batch.c sends them. */
#ifndef WEIR_LIMIT_QUEUE_H
#define WEIR_LIMIT_QUEUE_H

#include "limit/operation.h"

struct op_queue;

/* `timeout_us`: redis.timeout. NULL: out of memory. */
struct op_queue *op_queue_new(struct event_base *base, uint64_t timeout_us);
/* The queue must be empty. */
void op_queue_free(struct op_queue *q);

/* Queues the op for the next call: GATHERED. op_gather() counts it as a decision that waits;
 * op_gather_quietly() is for adjustments and for ops that were counted before. */
void op_gather(struct limit_op *op);
void op_gather_quietly(struct limit_op *op);
/* The same, before all others, also those that were held back; 2 ms later. An op before others gets
 * the virtual time of the first of them. */
void op_gather_first(struct limit_op *op);
void op_gather_later(struct limit_op *op);

/* Triggers a loop iteration. */
void op_queue_wake(struct op_queue *q);
/* Returns true if gathered ops wait: for more, to be sent in one call, or for a reply. Call once
 * per loop iteration. */
MUST_CHECK bool op_queue_waits(const struct limiter *l);
/* Calls `visit` for each op that waits to be sent. */
void op_queue_each(struct op_queue *q, void (*visit)(const struct limit_op *));
/* Moves the gathered ops to the list. */
void op_queue_take(struct op_queue *q, struct op_list *list);
/* Moves the ops of the list that must wait back into the queue. */
void op_queue_return(struct op_queue *q, struct op_list *list,
                     bool (*must_wait)(const struct limit_op *));
/* Removes and returns an op; NULL: the queue is empty. */
struct limit_op *op_queue_pop(struct op_queue *q);
/* If the op cannot be sent now, moves it from the list back into the queue and returns true. */
MUST_CHECK bool op_queue_holds_back(struct op_list *list, struct limit_op *op);
/* Call after the gathered ops were sent, or, if they wait, instead. */
void op_queue_end(struct op_queue *q, bool waits);

/* Call when a call of `ops` ops was sent, and when it is over. */
void op_queue_sent(struct op_queue *q, unsigned ops);
void op_queue_answered(struct op_queue *q, unsigned ops, uint64_t sent_us);

/* Returns true if calls are under way, but no reply came for so long. */
bool op_queue_is_silent(const struct op_queue *q, uint64_t us);
/* Returns true if no op is gathered or under way. */
bool op_queue_is_empty(const struct op_queue *q);

#endif
