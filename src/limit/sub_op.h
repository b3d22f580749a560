/* sub_op.h - the sub-operations of a request whose limits are in several slots of a cluster;
 * split.c sends them and makes the decision. */
#ifndef WEIR_LIMIT_SUB_OP_H
#define WEIR_LIMIT_SUB_OP_H

#include "limit/operation.h"

/*   COMING --> SENT --> CHARGED --> ENDED
 *      |        |                     ^
 *      '--------'---> REJECTED, FAILED, ENDED */
enum sub_op_state {
    SUB_OP_COMING,   /* its turn has not come */
    SUB_OP_SENT,     /* gathered or in a batch */
    SUB_OP_CHARGED,  /* Redis has charged its limits */
    SUB_OP_REJECTED, /* Redis has rejected it */
    SUB_OP_FAILED,   /* decided without Redis */
    SUB_OP_ENDED,    /* its op was let go: adjusted, canceled or released with the parent */
};

struct sub_op {
    struct limit_op *op;                 /* COMING, SENT, CHARGED; else NULL */
    enum sub_op_state state;             /* set by sub_op_enter() only */
    unsigned first_result, result_count; /* CHARGED: its results in the decision */
};

struct split {
    unsigned count;
    bool each; /* one sub-operation per limit */
    struct sub_op sub_ops[LIMITS_PER_RULE_MAX];
};

/* Changes the state. Asserts that the transition is legal. */
void sub_op_enter(struct sub_op *sub_op, enum sub_op_state state);

/* Makes the sub-operations of a parent. `each`: one per limit, even in the same slot. False: no
 * memory; the parent is as before. */
MUST_CHECK bool op_make_split(struct limit_op *parent, bool each);
/* Replaces a sub-operation of several limits by one per limit. False: no memory, and nothing has
 * changed. */
MUST_CHECK bool sub_op_part(struct limit_op *op);
/* Moves the last limit of an adjustment of several limits to an op of its own, PREPARED. NULL: no
 * memory. */
struct limit_op *op_take_last(struct limit_op *adjustment);
/* Returns the sub-operation of an op that has a parent. */
struct sub_op *sub_op_find(const struct limit_op *op);
/* Enters a state without an op: detaches the op from its parent; the caller owns it. */
struct limit_op *sub_op_let_go(struct sub_op *sub_op, enum sub_op_state state);
/* Frees the remaining sub-operations; the op can be reused. */
void op_drop_split(struct limit_op *op);

#endif
