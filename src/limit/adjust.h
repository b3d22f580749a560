/* adjust.h - records what Redis charged, and corrects it. */
#ifndef WEIR_LIMIT_ADJUST_H
#define WEIR_LIMIT_ADJUST_H

#include "limit/limit_reply.h"
#include "limit/operation.h"

/* Records Redis' charges in the op, for a later adjustment; or that of one of its limits. */
void op_write_charge(struct limit_op *op, const struct limit_reply *replies, int64_t time_us);
void op_limit_write_charge(struct op_limit *part, const struct limit_reply *reply, int64_t time_us);
/* Returns the driver's mode for refunds of the limit's charge: the charge's time or, of a bucket,
 * the negative time from which the charge no longer counts (see lua/driver.lua). */
int64_t op_limit_refund_mode(const struct op_limit *part);
/* Returns the charge that stays when a request is rejected: one remembered for dedup, since the
 * client's next try with the same ID is free; and a refund, since Redis does not return what it has
 * given back. */
static inline int64_t op_kept_charge(const struct op_limit *part)
{
    return part->repeat_key.n || part->cost < 0 ? part->charge.units : 0;
}
/* Returns what op_adjust() brings the charge of one of the op's limits to: `total`, or the units
 * that it has charged, if they cannot be given back or Redis is away. */
int64_t op_reachable_total(const struct limit_op *op, const struct op_limit *part, int64_t total);
/* Brings the charges to `totals` (one per limit). Takes ownership of the op. */
void op_adjust(struct limit_op *op, const int64_t *totals);
/* An adjustment was answered: denials from before it end, if it gave units back. */
void op_forget_denials(const struct limit_op *op);
/* Gives back the charges of a request that was rejected or did not happen, but for those that stay.
 * Takes ownership of the op. */
void op_refund(struct limit_op *op);
/* For a canceled request: frees its positions in queues. Other charges stay. Takes ownership of
 * the op. */
void op_leave_queues(struct limit_op *op);

#endif
