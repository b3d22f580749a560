/* split.h - a request whose limits are in several slots of a cluster; see split.c. */
#ifndef WEIR_LIMIT_SPLIT_H
#define WEIR_LIMIT_SPLIT_H

#include "limit/limit_reply.h"
#include "limit/operation.h"
#include "redis/failure.h"

/* Call after op_fill(). Finds each limit's slot; true: there are several. */
bool op_find_slots(struct limit_op *op);
/* Makes the sub-operations and sends the first. `each`: one per limit, even in the same slot.
 * False: no memory. */
MUST_CHECK bool split_begin(struct limit_op *op, bool each);
/* The sub-operation's keys are moving to another node: replaces it by one sub-operation per
 * limit. False: no memory. */
MUST_CHECK bool split_apart(struct limit_op *sub_op);
/* Handles a sub-operation's reply or failure; takes ownership of it. */
void split_answer(struct limit_op *sub_op, const struct limit_reply *replies, int64_t time_us);
void split_failed(struct limit_op *sub_op, enum redis_failure cause);
/* The sub-operation in progress: a parent that waits has one. */
const struct limit_op *split_sent(const struct limit_op *op);
/* The parent timed out, or was canceled. Both end it. */
void split_timeout(struct limit_op *op, enum redis_failure cause);
void split_abandon(struct limit_op *op);
/* Calls `adjust` for each charged sub-operation, which takes ownership of it; then releases the
 * parent. */
void split_adjust(struct limit_op *op, void (*adjust)(struct limit_op *sub_op, const void *facts),
                  const void *facts);

#endif
