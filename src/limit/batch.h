/* batch.h - calls of the driver, and ops that get no reply. */
#ifndef WEIR_LIMIT_BATCH_H
#define WEIR_LIMIT_BATCH_H

#include "limit/operation.h"
#include "redis/failure.h"

struct batches;

/* NULL: out of memory. */
struct batches *batches_new(void);
/* No call may be under way. */
void batches_free(struct batches *batches);

/* Sends the gathered requests, unless they wait for more. Runs deadlines that have passed. Call
 * once per loop iteration. */
void batches_flush(struct limiter *l);

/* Decides the op by on_failure, at the deadline of a decision. The caller's object may be freed
 * meanwhile; the op stays until its batch is answered. */
void op_time_out(struct limit_op *op);
/* Decides the op by on_failure, and releases it. */
void op_give_up(struct limit_op *op, enum redis_failure cause);

#endif
