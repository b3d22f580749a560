#include "redis/redis_reply.h"

#include <assert.h>
#include <stdarg.h>
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

static bool has_shape(const struct redis_reply *reply, const char *shape, size_t count)
{
    bool more = shape[count] == '+';

    if (!reply || reply->type != RESP_ARRAY || reply->count < count ||
        (reply->count > count && !more))
        return false;
    for (size_t i = 0; i < count; i++)
        if (!has_type(&reply->elements[i], shape[i]))
            return false;
    return true;
}

bool redis_reply_read(const struct redis_reply *reply, const char *shape, ...)
{
    size_t count = strcspn(shape, "+");
    va_list to;

    if (!has_shape(reply, shape, count))
        return false;
    va_start(to, shape);
    for (size_t i = 0; i < count; i++) {
        const struct redis_reply *element = &reply->elements[i];
        switch (shape[i]) {
        case 'i': *va_arg(to, int64_t *) = element->integer; break;
        case 's': *va_arg(to, struct slice *) = element->text; break;
        default: *va_arg(to, const struct redis_reply **) = element; break;
        }
    }
    va_end(to);
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
