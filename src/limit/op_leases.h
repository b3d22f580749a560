/* op_leases.h - decisions from leased units; see leases.h. */
#ifndef WEIR_LIMIT_OP_LEASES_H
#define WEIR_LIMIT_OP_LEASES_H

#include "limit/limiter_state.h"

/* False: out of memory. */
bool limiter_leases_init(struct limiter *l);
void limiter_leases_return(struct limiter *l); /* all units, to Redis */
void limiter_leases_free(struct limiter *l);   /* call before the spare ops are freed */
/* Call after op_fill(). Looks up the lease of the op's key, if it may have one. */
void op_meet_lease(struct limit_op *op, const struct limit_facts *facts);
/* Decides from the lease. The op becomes the charge or is released. False: the lease is empty. */
MUST_CHECK bool op_spend_lease(struct limit_op *op, struct decision_request *decision_request);
/* Returns the number of units to request beyond the op's own. *requested: the lease for them, or
 * NULL. */
int64_t op_request_lease(const struct limit_op *op, struct lease **requested);
/* Call for a group with a lease, before its ops get their replies. `replies` NULL: no reply. */
void lease_answered(struct group *group, const struct limit_reply *replies, int64_t time_us,
                    uint64_t requested_us);
void op_note_remaining(const struct limit_op *op, const struct limit_reply *replies,
                       uint64_t requested_us);
/* Call when the op's unit is refunded. */
void op_unspend_lease(struct limit_op *op);

#endif
