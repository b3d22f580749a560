/* guard.h - protects hiredis' reader against unsolicited and oversized replies.
 *
 * An unsolicited reply would trip an assertion in redisProcessCallbacks() and abort the process.
 * The guard refuses to build its object, which makes it a protocol error. An array with more
 * than 65536 elements is refused in the same way. */
#ifndef WEIR_REDIS_GUARD_H
#define WEIR_REDIS_GUARD_H

#include <hiredis/hiredis.h>
#include <stdbool.h>

struct redis_kept;

struct redis_guard {
    redisReplyObjectFunctions *plain, guarded;
    const unsigned *unanswered;
    bool extra_answer;       /* an unsolicited reply was received */
    struct redis_kept *kept; /* NULL: every reply is allocated */
};

/* Installs the guard in `reader`. `*unanswered` is the number of commands given to hiredis that
 * have no reply yet. It and the guard must outlive the reader. */
void redis_guard(struct redis_guard *guard, redisReader *reader, const unsigned *unanswered);

/* From now on the guard stores replies that are arrays of numbers in a preallocated buffer, one
 * reply at a time. Only for readers whose replies are freed by their own freeObject, as hiredis'
 * asynchronous context does. The buffer outlives its readers until redis_guard_free(). */
void redis_guard_keep(struct redis_guard *guard);
void redis_guard_free(struct redis_guard *guard);

#endif
