#include "redis/redis_reply.h"

#include <assert.h>
#include <stdlib.h>

static bool has_type(const struct redis_reply *reply, char letter)
{
    switch (letter) {
    case 'i': return reply->type == RESP_INTEGER;
    case 's': return reply->type == RESP_STRING;
    case 'a': return reply->type == RESP_ARRAY;
    default: return letter == '*';
    }
}

bool redis_reply_is(const struct redis_reply *reply, const char *shape)
{
    if (reply->type != RESP_ARRAY || reply->count != strlen(shape))
        return false;
    for (size_t i = 0; i < reply->count; i++)
        if (!has_type(&reply->elements[i], shape[i]))
            return false;
    return true;
}

/* Recursion ends: hiredis refuses arrays nested more than nine deep. */
void redis_reply_clear(struct redis_reply *reply)
{
    for (size_t i = 0; i < reply->count; i++)
        redis_reply_clear(&reply->elements[i]);
    free(reply->elements);
    free((char *)(uintptr_t)reply->text.p);
    *reply = (struct redis_reply){.type = RESP_NIL};
}

void redis_reply_move(struct redis_reply *to, struct redis_reply *from)
{
    assert(!from->preallocated);
    *to = *from;
    *from = (struct redis_reply){.type = RESP_NIL};
}
