/* operation.c - ops, their phases, and the queue to Redis.
 *
 *   SPARE --> PREPARED ----> GATHERED --> SENT --> ANSWERED --> CHARGE
 *                |              ^                    |            |
 *                |              |<-- sent again ----|            |
 *                |              |<-- adjustment, units given back-'
 *                |--> SPLIT: sub-operations go this way, in turn; then CHARGE
 *                '--> CHARGE: a unit of a lease
 *
 *   SPARE      reusable; nothing refers to it
 *   PREPARED   has its keys and limits, and belongs to the code that took it; or is a sub-operation
 *              whose turn has not come
 *   GATHERED   in a list of ops for the next call
 *   SENT       in a batch without a reply
 *   ANSWERED   being completed: the batch has a reply, or will get none
 *   SPLIT      has sub-operations, which charge its limits
 *   CHARGE     admitted and charged; kept by its request, its parent or its lease for adjustments
 *
 * Every phase but SENT may end with op_release(). */
#include "limit/operation.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/magic.h"

#define TO(phase) (1u << (phase))

const uint8_t op_next_phases[] = {
    [OP_SPARE] = TO(OP_PREPARED),
    [OP_PREPARED] = TO(OP_GATHERED) | TO(OP_SPLIT) | TO(OP_CHARGE) | TO(OP_SPARE),
    [OP_GATHERED] = TO(OP_SENT) | TO(OP_SPARE),
    [OP_SENT] = TO(OP_ANSWERED),
    [OP_ANSWERED] = TO(OP_GATHERED) | TO(OP_SPLIT) | TO(OP_CHARGE) | TO(OP_SPARE),
    [OP_SPLIT] = TO(OP_CHARGE) | TO(OP_SPARE),
    [OP_CHARGE] = TO(OP_GATHERED) | TO(OP_SPARE),
};

/* --- Memory ----------------------------------------------------------------------------------- */

void op_drop_permits(struct limit_op *op)
{
    while (op->permit_count > 0)
        permits_unuse(op->limiter->permits, op->permits[--op->permit_count]);
}

struct limit_op *sub_op_let_go(struct sub_op *sub_op, enum sub_op_state state)
{
    struct limit_op *op = sub_op->op;

    sub_op->op = NULL;
    sub_op->state = state;
    op->parent = NULL;
    return op;
}

void op_drop_split(struct limit_op *op)
{
    struct split *split = op->split;

    op->alone = false;
    op->split = NULL;
    if (!split)
        return;
    for (unsigned i = 0; i < split->count; i++) {
        struct sub_op *sub_op = &split->sub_ops[i];
        bool sent = sub_op->state == SUB_OP_SENT;
        if (!sub_op->op)
            continue;
        sub_op->op->abandoned = op->abandoned;
        if (sent)
            (void)sub_op_let_go(sub_op, SUB_OP_FAILED); /* its batch or a gathered list owns it */
        else
            op_release(sub_op_let_go(sub_op, SUB_OP_FAILED));
    }
    free(split);
}

struct limit_op *op_allocate(struct limiter *l)
{
    struct limit_op *op = malloc(sizeof *op + l->op_keys_size);
    if (!op)
        return NULL;
    MAGIC_SET(op, OP_MAGIC);
    op->phase = OP_SPARE;
    op->limiter = l;
    op->batch = NULL;
    op->deadline.queue = NULL;
    op->split = NULL;
    op->parent = NULL;
    op->slot = 0;
    op->alone = false;
    op->permit_count = 0;
    op->lease = NULL;
    return op;
}

struct limit_op *op_take(struct limiter *l)
{
    struct limit_op *op = TAILQ_FIRST(&l->spare_ops);

    if (op) {
        TAILQ_REMOVE(&l->spare_ops, op, entry);
        l->spare_op_count--;
    } else if (!(op = op_allocate(l)))
        return NULL;
    op_enter(op, OP_PREPARED);
    return op;
}

void op_free(struct limit_op *op)
{
    MAGIC_WIPE(op);
    free(op);
}

void op_release(struct limit_op *op)
{
    struct limiter *l = op->limiter;

    assert(!op->decision_request && !deadline_is_armed(&op->deadline));
    op_drop_permits(op);
    op->lease = NULL;
    if (op->split || op->alone)
        op_drop_split(op);
    op_enter(op, OP_SPARE);
    if (op == l->reserve)
        return;
    if (l->spare_op_count >= SPARE_OPS_MAX) {
        op_free(op);
        return;
    }
    TAILQ_INSERT_HEAD(&l->spare_ops, op, entry);
    l->spare_op_count++;
}

struct decision_request *op_cut(struct limit_op *op)
{
    struct decision_request *decision_request = op->decision_request;
    deadline_cancel(&op->deadline);
    if (decision_request)
        decision_request->op = NULL;
    op->decision_request = NULL;
    return decision_request;
}

/* --- Queue ------------------------------------------------------------------------------------ */

void op_clear(struct limit_op *op)
{
    op->decision_request = NULL;
    op->started_us = 0;
    op->now_us = 0;
    op->keys_size = 0;
    op->count = 0;
    op->denial_key_known = op->is_adjustment = op->part = op->abandoned = op->counts_later = false;
    op->aside_count = 0;
    op->times_repeated = 0;
    op->lease = NULL;
}

void op_copy(struct limit_op *op, const struct limit_op *from)
{
    op_clear(op);
    memcpy(op->keys, from->keys, from->keys_size);
    op->keys_size = from->keys_size;
    op->started_us = from->started_us;
    op->now_us = from->now_us;
}

void op_gather_quietly(struct limit_op *op)
{
    op_enter(op, OP_GATHERED);
    TAILQ_INSERT_TAIL(&op->limiter->gathered, op, entry);
}

void op_gather(struct limit_op *op)
{
    struct limiter *l = op->limiter;

    op_gather_quietly(op);
    if (l->gathered_count++ == 0)
        l->gathered_since_us = clock_cached_us();
}

/* --- Properties ------------------------------------------------------------------------------- */

/* A unit's reply must hold no more than its share of the granted units, and must follow from the
 * group's reply. */
bool op_is_unit(const struct limit_op *op)
{
    const struct op_limit *part = &op->limits[0];

    return op->count == 1 && !op->is_adjustment && !op->parent && !op->now_us && part->cost == 1 &&
           part->mode == MODE_PLAIN && !part->shadow && part->repeat_key.n == 0 &&
           op->times_repeated < GROUPED_REQUESTS_MAX &&
           (part->limit->kind == LIMIT_BUCKET || part->limit->kind == LIMIT_WINDOW) &&
           part->limit->max_delay_us == 0;
}

unsigned op_key_count(const struct limit_op *op)
{
    unsigned count = op->count;
    for (unsigned i = 0; i < op->count; i++)
        count += op->limits[i].repeat_key.n > 0;
    return count;
}
