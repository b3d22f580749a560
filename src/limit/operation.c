/* operation.c - ops and their phases.
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

#include "base/magic.h"
#include "limit/limiter_parts.h"
#include "limit/permits.h"
#include "limit/sub_op.h"

enum {
    SPARE_OPS_MAX = 4096,
    GROUPED_REQUESTS_MAX = 2, /* after so many tries a request is sent on its own */
};

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
    while (op->permits.count > 0)
        permits_unuse(op->limiter->permits, op->permits.list[--op->permits.count]);
}

/* Returns a new op, which is SPARE; NULL: no memory. */
static struct limit_op *allocate_op(struct limiter *l, size_t keys_size)
{
    struct limit_op *op = malloc(sizeof *op + keys_size);
    if (!op)
        return NULL;
    MAGIC_SET(op, OP_MAGIC);
    op->phase = OP_SPARE;
    op->limiter = l;
    op->sending.batch = NULL;
    op->deadline.queue = NULL;
    op->cluster.split = NULL;
    op->cluster.parent = NULL;
    op->cluster.slot = 0;
    op->cluster.alone = false;
    op->permits.count = 0;
    op->leased.lease = NULL;
    op->wide = NULL;
    return op;
}

static void op_free(struct limit_op *op)
{
    free(op->wide);
    MAGIC_WIPE(op);
    free(op);
}

struct op_pool *op_pool_new(struct limiter *l, size_t keys_size)
{
    struct op_pool *pool = calloc(1, sizeof *pool);

    if (!pool)
        return NULL;
    TAILQ_INIT(&pool->spare);
    pool->keys_size = keys_size;
    if ((pool->reserve = allocate_op(l, keys_size)))
        return pool;
    free(pool);
    return NULL;
}

void op_pool_free(struct op_pool *pool)
{
    struct limit_op *op;

    if (!pool)
        return;
    while ((op = TAILQ_FIRST(&pool->spare))) {
        TAILQ_REMOVE(&pool->spare, op, sending.entry);
        op_free(op);
    }
    op_free(pool->reserve);
    free(pool);
}

struct limit_op *op_take(struct limiter *l)
{
    struct op_pool *pool = l->ops;
    struct limit_op *op = TAILQ_FIRST(&pool->spare);

    if (op) {
        TAILQ_REMOVE(&pool->spare, op, sending.entry);
        pool->spare_count--;
    } else if (!(op = allocate_op(l, pool->keys_size)))
        return NULL;
    op_enter(op, OP_PREPARED);
    return op;
}

void op_release(struct limit_op *op)
{
    struct op_pool *pool = op->limiter->ops;

    assert(!op->decision_request && !deadline_is_armed(&op->deadline));
    op_drop_permits(op);
    op->leased.lease = NULL;
    if (op->wide) {
        free(op->wide);
        op->wide = NULL;
    }
    if (op->cluster.split || op->cluster.alone)
        op_drop_split(op);
    op_enter(op, OP_SPARE);
    if (op == pool->reserve)
        return;
    if (pool->spare_count >= SPARE_OPS_MAX) {
        op_free(op);
        return;
    }
    TAILQ_INSERT_HEAD(&pool->spare, op, sending.entry);
    pool->spare_count++;
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

/* --- Requests --------------------------------------------------------------------------------- */

void op_clear(struct limit_op *op)
{
    op->decision_request = NULL;
    op->started_us = 0;
    op->now_us = op->limiter->now_us;
    op->keys_size = 0;
    op->count = 0;
    op->denial.key_known = op->is_adjustment = op->denial.barred = op->abandoned =
        op->counting.later = op->counting.partial = false;
    op->counting.aside_count = op->counting.aside_results = 0;
    op->sending.times_repeated = 0;
    op->leased.lease = NULL;
}

void op_copy(struct limit_op *op, const struct limit_op *from)
{
    op_clear(op);
    memcpy(op->keys, from->keys, from->keys_size);
    op->keys_size = from->keys_size;
    op->started_us = from->started_us;
    op->now_us = from->now_us;
}

/* --- Properties ------------------------------------------------------------------------------- */

/* A unit's reply must hold no more than its share of the granted units, and must follow from the
 * group's reply. */
bool op_is_unit(const struct limit_op *op)
{
    const struct op_limit *part = &op->limits[0];

    return op->count == 1 && !op->is_adjustment && !op->cluster.parent && !op->now_us &&
           part->cost == 1 && part->mode == MODE_PLAIN && !part->shadow &&
           part->repeat_key.n == 0 && op->sending.times_repeated < GROUPED_REQUESTS_MAX &&
           (part->limit->kind == LIMIT_BUCKET || part->limit->kind == LIMIT_WINDOW) &&
           part->limit->max_delay_us == 0;
}

unsigned op_key_count(const struct limit_op *op)
{
    unsigned count = op->wide ? op->wide->count : op->count;
    for (unsigned i = 0; i < op->count; i++)
        count += op->limits[i].repeat_key.n > 0;
    return count;
}
