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
/* Fills a free op with the next pending permit call. False: none is pending; the op is
 * unchanged. */
MUST_CHECK bool op_fill_permit_call(struct limit_op *op);
/* Returns true if the op was canceled and a queue charged it with a delay. */
bool op_would_have_waited(const struct limit_op *op, const struct limit_reply *replies);

#endif
