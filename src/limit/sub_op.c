#include "limit/sub_op.h"

#include <stdlib.h>

#include "limit/permits.h"

#define TO(state) (1u << (state))

static const uint8_t next_states[] = {
    [SUB_OP_COMING] = TO(SUB_OP_SENT) | TO(SUB_OP_FAILED) | TO(SUB_OP_ENDED),
    [SUB_OP_SENT] = TO(SUB_OP_CHARGED) | TO(SUB_OP_REJECTED) | TO(SUB_OP_FAILED) | TO(SUB_OP_ENDED),
    [SUB_OP_CHARGED] = TO(SUB_OP_ENDED),
    [SUB_OP_REJECTED] = 0,
    [SUB_OP_FAILED] = 0,
    [SUB_OP_ENDED] = 0,
};

void sub_op_enter(struct sub_op *sub_op, enum sub_op_state state)
{
    assert(next_states[sub_op->state] & TO(state));
    sub_op->state = state;
}

struct limit_op *sub_op_let_go(struct sub_op *sub_op, enum sub_op_state state)
{
    struct limit_op *op = sub_op->op;

    sub_op_enter(sub_op, state);
    sub_op->op = NULL;
    op->cluster.parent = NULL;
    return op;
}

struct sub_op *sub_op_find(const struct limit_op *op)
{
    struct split *split = op->cluster.parent->cluster.split;

    for (unsigned i = 0; i < split->count; i++)
        if (split->sub_ops[i].op == op)
            return &split->sub_ops[i];
    abort(); /* op->cluster.parent is set only while the parent has the sub-operation */
}

/* --- Making ----------------------------------------------------------------------------------- */

static struct slice moved(struct slice key, const struct limit_op *from, struct limit_op *to)
{
    return key.n ? (struct slice){to->keys + (key.p - from->keys), key.n} : key;
}

/* Moves the limit and its permit from the parent to the sub-operation. */
static void add_limit(struct limit_op *sub_op, struct limit_op *parent,
                      const struct op_limit *limit)
{
    struct op_limit *part = &sub_op->limits[sub_op->count++];

    *part = *limit;
    part->key = moved(limit->key, parent, sub_op);
    part->repeat_key = moved(limit->repeat_key, parent, sub_op);
    for (unsigned i = 0; i < parent->permits.count; i++)
        if (parent->permits.list[i] == part->permit) {
            sub_op->permits.list[sub_op->permits.count++] = part->permit;
            parent->permits.list[i] = parent->permits.list[--parent->permits.count];
            break;
        }
}

static struct limit_op *sub_op_make(struct limit_op *parent)
{
    struct limit_op *sub_op = op_take(parent->limiter);

    if (!sub_op)
        return NULL;
    op_copy(sub_op, parent);
    sub_op->cluster.parent = parent;
    sub_op->counting.later = true;
    return sub_op;
}

static bool refunds(const struct limit_op *op)
{
    return op->limits[0].cost < 0;
}

/* The sub-operation that the limit belongs to, or NULL. */
static struct limit_op *sub_op_of(const struct split *split, const struct op_limit *limit)
{
    for (unsigned i = 0; i < split->count && !split->each; i++) {
        struct limit_op *op = split->sub_ops[i].op;
        if (op->limits[0].slot == limit->slot && refunds(op) == (limit->cost < 0))
            return op;
    }
    return NULL;
}

/* Moves sub-operations that refund to the end. They never reject, and what they gave back cannot
 * be charged again: a limit may have had less in use. So they have no limit that charges. */
static void sort_refunds(struct split *split)
{
    struct sub_op last[LIMITS_PER_RULE_MAX] = {0};
    unsigned count = 0, others = 0;

    for (unsigned i = 0; i < split->count; i++)
        if (refunds(split->sub_ops[i].op))
            last[count++] = split->sub_ops[i];
        else
            split->sub_ops[others++] = split->sub_ops[i];
    memcpy(split->sub_ops + others, last, count * sizeof last[0]);
}

static bool make_sub_ops(struct limit_op *parent)
{
    struct split *split = parent->cluster.split;

    for (unsigned i = 0; i < parent->count; i++) {
        struct limit_op *sub_op = sub_op_of(split, &parent->limits[i]);
        if (!sub_op) {
            if (!(sub_op = sub_op_make(parent)))
                return false;
            split->sub_ops[split->count++] = (struct sub_op){.op = sub_op, .state = SUB_OP_COMING};
        }
        add_limit(sub_op, parent, &parent->limits[i]);
    }
    sort_refunds(split);
    for (unsigned i = 0; i < split->count; i++)
        if (split->sub_ops[i].op->count == 1) /* as for a rule with one limit */
            op_limit_alone(&split->sub_ops[i].op->limits[0]);
    return split->count > 0;
}

/* Moves the permits of the sub-operations back to the parent. */
static void take_permits_back(struct limit_op *parent)
{
    struct split *split = parent->cluster.split;

    for (unsigned i = 0; i < split->count; i++) {
        struct limit_op *sub_op = split->sub_ops[i].op;
        while (sub_op->permits.count > 0)
            parent->permits.list[parent->permits.count++] =
                sub_op->permits.list[--sub_op->permits.count];
    }
}

bool op_make_split(struct limit_op *parent, bool each)
{
    struct split *split = calloc(1, sizeof *split);

    if (!split)
        return false;
    parent->cluster.split = split;
    split->each = each;
    if (make_sub_ops(parent))
        return true;
    take_permits_back(parent);
    op_drop_split(parent);
    return false;
}

/* Makes one sub-operation per limit. False: no memory, and none was made. */
static bool make_single_ops(const struct limit_op *op, struct limit_op **parts)
{
    for (unsigned i = 0; i < op->count; i++)
        if (!(parts[i] = sub_op_make(op->cluster.parent))) {
            while (i > 0) {
                parts[--i]->cluster.parent = NULL;
                op_release(parts[i]);
            }
            return false;
        }
    return true;
}

bool sub_op_part(struct limit_op *op)
{
    struct limit_op *parts[LIMITS_PER_RULE_MAX];
    struct split *split = op->cluster.parent->cluster.split;
    unsigned at = (unsigned)(sub_op_find(op) - split->sub_ops), count = op->count;

    if (!make_single_ops(op, parts))
        return false;
    memmove(&split->sub_ops[at + count], &split->sub_ops[at + 1],
            (split->count - at - 1) * sizeof split->sub_ops[0]);
    split->count += count - 1; /* at most the number of limits */
    for (unsigned i = 0; i < count; i++) {
        add_limit(parts[i], op, &op->limits[i]);
        op_limit_alone(&parts[i]->limits[0]);
        parts[i]->cluster.alone = true;
        split->sub_ops[at + i] = (struct sub_op){.op = parts[i], .state = SUB_OP_COMING};
    }
    op->cluster.parent = NULL;
    op_release(op);
    return true;
}

struct limit_op *op_take_last(struct limit_op *adjustment)
{
    struct limit_op *own = op_take(adjustment->limiter);

    if (!own)
        return NULL;
    op_copy(own, adjustment);
    own->is_adjustment = true;
    add_limit(own, adjustment, &adjustment->limits[--adjustment->count]);
    op_limit_alone(&own->limits[0]);
    return own;
}

/* --- The end ---------------------------------------------------------------------------------- */

void op_drop_split(struct limit_op *op)
{
    struct split *split = op->cluster.split;

    op->cluster.alone = false;
    op->cluster.split = NULL;
    if (!split)
        return;
    for (unsigned i = 0; i < split->count; i++) {
        struct sub_op *sub_op = &split->sub_ops[i];
        bool sent = sub_op->state == SUB_OP_SENT;
        if (!sub_op->op)
            continue;
        sub_op->op->abandoned = op->abandoned;
        struct limit_op *own = sub_op_let_go(sub_op, SUB_OP_ENDED);
        if (!sent) /* else its batch or a gathered list owns it */
            op_release(own);
    }
    free(split);
}
