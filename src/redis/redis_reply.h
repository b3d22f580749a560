/* redis_reply.h - a decoded reply of Redis. Other directories see replies in this form only;
 * hiredis stays inside redis/. */
#ifndef WEIR_REDIS_REDIS_REPLY_H
#define WEIR_REDIS_REDIS_REPLY_H

#include "base/slice.h"

/* Types of the Redis serialization protocol (RESP). The values are those of hiredis, which reads
 * the type of a reply in a few places. */
enum resp_type {
    RESP_STRING = 1,
    RESP_ARRAY = 2,
    RESP_INTEGER = 3,
    RESP_NIL = 4,
    RESP_STATUS = 5,
    RESP_ERROR = 6,
};

/* Members that do not belong to the type are zero. */
struct redis_reply {
    int type;          /* enum resp_type; must be first: hiredis reads it */
    bool preallocated; /* private to redis_reply_reader.c */
    int64_t integer;
    struct slice text; /* of a string, status or error; a NUL follows */
    size_t count;      /* elements of an array */
    struct redis_reply *elements;
};

/* Reads an array whose elements have the types in `shape`, one letter each, into the variables to
 * which the further arguments point:
 *   i  an integer: int64_t
 *   s  a string: struct slice
 *   a  an array, or * anything: const struct redis_reply *
 * A '+' at the end of `shape` permits more elements. The results point into the reply. Returns
 * false and writes nothing if the reply, which may be NULL, is not such an array. */
MUST_CHECK bool redis_reply_read(const struct redis_reply *reply, const char *shape, ...);

/* Frees what the reply contains, but not the struct, which becomes RESP_NIL. */
void redis_reply_clear(struct redis_reply *reply);

/* Moves the contents of `from`, which becomes RESP_NIL, into `*to`. The caller frees them with
 * redis_reply_clear(). `from` must not be a reply of a link (see redis_reply_reader_keep). */
void redis_reply_move(struct redis_reply *to, struct redis_reply *from);

#endif
