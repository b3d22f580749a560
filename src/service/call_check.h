/* call_check.h - the bounds and the validity of a call. */
#ifndef WEIR_SERVICE_CALL_CHECK_H
#define WEIR_SERVICE_CALL_CHECK_H

#include "policy/rate_limit_call.h"

/* Returns NULL, or why the call is not valid. */
const char *call_check(const struct rate_limit_call *call);

/* Reasons that readers find themselves. */
extern const char call_too_many_descriptors[], call_too_many_entries[], call_too_much_memory[];

#endif
