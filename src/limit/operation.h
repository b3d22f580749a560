/* operation.h - an op: one decision on its way to Redis and back. operation.c has its phases. */
#ifndef WEIR_LIMIT_OPERATION_H
#define WEIR_LIMIT_OPERATION_H

#include <assert.h>

#include "limit/limiter_state.h"

/* Returns a new op, which is SPARE; NULL: no memory. */
struct limit_op *op_allocate(struct limiter *l);
/* Takes a spare op or a new one, which is then PREPARED. NULL: no memory. */
struct limit_op *op_take(struct limiter *l);
/* Makes the op SPARE, or frees it: drops its permits and sub-operations. It has no request. */
void op_release(struct limit_op *op);
void op_free(struct limit_op *op);

/* By phase: the phases that may follow, a bit for each. */
extern const uint8_t op_next_phases[OP_CHARGE + 1];

/* Changes the phase. Asserts that the transition is legal. */
static inline void op_enter(struct limit_op *op, enum op_phase phase)
{
    assert(op_next_phases[op->phase] & 1u << phase);
    op->phase = phase;
    if (phase != OP_SENT)
        op->batch = NULL;
}

/* Queues the op for the next call: GATHERED. op_gather() counts it as a decision that waits;
 * op_gather_quietly() is for adjustments and for ops that were counted before. */
void op_gather(struct limit_op *op);
void op_gather_quietly(struct limit_op *op);

/* Resets what belongs to one request. Whatever prepares an op begins with it. */
void op_clear(struct limit_op *op);
/* Copies an op's request, without its limits and its caller. */
void op_copy(struct limit_op *op, const struct limit_op *from);
/* Separates the op from its decision request, and stops its timer. Returns the request, or NULL. */
struct decision_request *op_cut(struct limit_op *op);
/* Releases the op's permits. */
void op_drop_permits(struct limit_op *op);

/* Returns true if the op requests one unit of one limit and can be combined with others. */
bool op_is_unit(const struct limit_op *op);
/* Returns the number of keys that the op uses. */
unsigned op_key_count(const struct limit_op *op);

/* Detaches a sub-operation's op from its parent; the caller owns it. */
struct limit_op *sub_op_let_go(struct sub_op *sub_op, enum sub_op_state state);
/* Frees the remaining sub-operations; the op can be reused. */
void op_drop_split(struct limit_op *op);

#endif
