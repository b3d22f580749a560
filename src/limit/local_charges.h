/* local_charges.h - what this process charges, without Redis, to limits of a request that another
 * limit may still reject. */
#ifndef WEIR_LIMIT_LOCAL_CHARGES_H
#define WEIR_LIMIT_LOCAL_CHARGES_H

#include "limit/operation.h"

/* Gives back what a rejected request has charged in this process to the limit of `r`, whose key is
 * `key`, at `since_us` (monotonic) or later, if it still counts. */
void local_charges_refund_limit(struct limiter *l, struct limit_result *r, struct slice key,
                                uint64_t since_us);
/* The same for all limits of a rejected request, of which the op has the keys. */
void local_charges_refund(const struct limit_op *op, struct decision *d);
/* For an op that continues with its other limits: moves its first `failed` limits behind these, and
 * keeps their results for the final verdict. */
void local_charges_set_aside(struct limit_op *op, unsigned failed, struct decision *d);
/* Adds the results of limits that were set aside to those of the decision. */
void local_charges_add_set_aside(const struct limit_op *op, struct decision *d);

#endif
