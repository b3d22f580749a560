/* failed_limits.h - limits of an op whose own scripts failed (lua/guard.lua): they are decided
 * without Redis, while Redis decides the others. */
#ifndef WEIR_LIMIT_FAILED_LIMITS_H
#define WEIR_LIMIT_FAILED_LIMITS_H

#include "limit/limit_reply.h"
#include "limit/operation.h"

/* Moves failed limits to the front and returns their number. Returns 0 if the failures do not
 * matter: the failed limits are shadow limits, or another limit rejects. `sorted`: the replies in
 * the new order. `charged`: the driver has charged the other limits, since those that failed are
 * only tried: refunds, free limits, and those of charge: every. */
unsigned failed_limits_sort(struct limit_op *op, const struct limit_reply *replies,
                            struct limit_reply *sorted, bool *charged);

/* Decides failed limits of a decision by their on_failure. Returns the replies of the limits that
 * the op has left: the given ones, or some in `sorted`, storage for LIMITS_PER_RULE_MAX. NULL: the
 * op is over, or gathered to request these limits again, which Redis has not charged. */
const struct limit_reply *failed_limits_decide(struct limit_op *op,
                                               const struct limit_reply *replies,
                                               struct limit_reply *sorted, int64_t time_us);

/* ---- script_failures.c: counts and logs ------------------------------------------------------ */

/* Counts failures. Logs the first one, and the end of a failure period. */
void failures_note(const struct limit_op *op, const struct limit_reply *replies, uint64_t now_us);
/* Counts own-script limits whose request timed out. */
void failures_note_late(const struct limit_op *op);

#endif
