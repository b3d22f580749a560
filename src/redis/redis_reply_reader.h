/* redis_reply_reader.h - makes hiredis' parser build struct redis_reply, within limits.
 *
 * - An unsolicited reply is refused: it would trip an assertion in hiredis' asynchronous context
 *   and abort the process.
 * - So is an array of more than 65536 elements, or a reply of more than 524288 in all, or with
 *   texts of more than 16 MiB.
 * A refused reply is a protocol error. */
#ifndef WEIR_REDIS_REDIS_REPLY_READER_H
#define WEIR_REDIS_REDIS_REPLY_READER_H

#include <hiredis/hiredis.h>

#include "redis/redis_reply.h"

struct preallocated_reply;

struct redis_reply_reader {
    redisReplyObjectFunctions functions;
    const unsigned *unanswered;
    bool unsolicited;                        /* an unsolicited reply was received */
    size_t elements, text_bytes;             /* of the reply that is being read */
    struct preallocated_reply *preallocated; /* NULL: every reply is allocated */
};

/* Installs `own` in `reader`, whose replies are then of type struct redis_reply. `*unanswered` is
 * the number of commands without a reply; unsolicited replies are refused while it is 0. It and
 * `own` must outlive the reader. */
void redis_reply_reader_install(struct redis_reply_reader *own, redisReader *reader,
                                const unsigned *unanswered);

/* Frees a reply of such a reader. NULL is allowed. */
void redis_reply_free(struct redis_reply *reply);

/* From now on, an array of up to 1024 elements is stored in a preallocated buffer, one reply at a
 * time: each must be freed before the next is read. The buffer outlives its readers until
 * redis_reply_reader_free(). */
void redis_reply_reader_keep(struct redis_reply_reader *own);
void redis_reply_reader_free(struct redis_reply_reader *own);

#endif
