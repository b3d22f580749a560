/* script_failures.h - the operator's own limiter scripts that fail, see lua/guard.lua. */
#ifndef WEIR_LIMIT_SCRIPT_FAILURES_H
#define WEIR_LIMIT_SCRIPT_FAILURES_H

#include "limit/limit_reply.h"
#include "limit/operation.h"

/* Counts failures. Logs the first one, and the end of a failure period. */
void failures_note(const struct limit_op *op, const struct limit_reply *replies, uint64_t now_us);
/* Counts own-script limits whose request timed out. */
void failures_note_late(const struct limit_op *op);

#endif
