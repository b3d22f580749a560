/* op_permits.h - ops of concurrency limits, and of canceled requests in a queue. */
#ifndef WEIR_LIMIT_OP_PERMITS_H
#define WEIR_LIMIT_OP_PERMITS_H

#include "limit/limit_reply.h"
#include "limit/operation.h"

/* Call after op_fill(). False: no memory; op_release() drops the permits already taken. */
MUST_CHECK bool op_use_permits(struct limit_op *op);
/* Call when the op was sent; when it has a reply; when its outcome is unknown. */
void op_permits_sent(struct limit_op *op);
void op_permits_answered(struct limit_op *op);
void op_permits_failed(struct limit_op *op);
/* Call if the op's call was sent twice. */
void op_permits_sent_again(struct limit_op *op);
/* Gives the request the units that Redis charged. decision_request NULL: they are given back. */
void op_permits_charged(struct limit_op *op, struct decision_request *decision_request,
                        const struct limit_reply *replies);
/* The same for units that the fallback charged. */
void op_permits_locally(struct limit_op *op, struct decision_request *decision_request);
/* Call before op_gather_permit_calls() for each op to be sent. */
void op_permits_prepare(const struct limit_op *op);
/* Inserts permit calls before all gathered ops: the count that a permit states leaves out units
 * that have not been sent yet. True: some calls must wait for replies; see op_waits_for_total(). */
MUST_CHECK bool op_gather_permit_calls(struct limiter *l);
/* Returns true if the op must not be sent before the total of one of its permits. */
bool op_waits_for_total(const struct limit_op *op);
/* Returns true if the op was canceled and a queue charged it with a delay. */
bool op_would_have_waited(const struct limit_op *op, const struct limit_reply *replies);

#endif
