#include "redis/guard.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum {
    ELEMENTS_MAX = 65536, /* per array; a decision's reply has a few thousand at most */
    KEPT_MAX = 1024,      /* per array in the preallocated buffer */
    KEPT_SIGN = 0x6b657074
};

/* Buffer for one array reply, without an allocation per number. hiredis passes no context to
 * freeObject; KEPT_SIGN in `integer`, which is 0 in other arrays, identifies this buffer. */
struct redis_kept {
    redisReply array; /* must be first: cast from redisReply */
    redisReply *pointers[KEPT_MAX];
    redisReply numbers[KEPT_MAX];
    bool taken;
};

static bool nobody_asked(const redisReadTask *task)
{
    struct redis_guard *guard = task->privdata;
    if (task->parent || *guard->unanswered > 0)
        return false;
    guard->extra_answer = true;
    return true;
}

static redisReplyObjectFunctions *plain_of(const redisReadTask *task)
{
    return ((struct redis_guard *)task->privdata)->plain;
}

static void *guard_string(const redisReadTask *task, char *bytes, size_t size)
{
    return nobody_asked(task) ? NULL : plain_of(task)->createString(task, bytes, size);
}

/* Returns the buffer if `task` is a top-level array that fits and the buffer is free; else NULL. */
static void *kept_array(const redisReadTask *task, size_t elements)
{
    struct redis_kept *kept = ((struct redis_guard *)task->privdata)->kept;

    if (!kept || kept->taken || task->parent || elements > KEPT_MAX || task->type != REDIS_REPLY_ARRAY)
        return NULL;
    kept->taken = true;
    kept->array = (redisReply){
        .type = REDIS_REPLY_ARRAY, .integer = KEPT_SIGN, .elements = elements, .element = kept->pointers};
    memset(kept->pointers, 0, elements * sizeof kept->pointers[0]);
    return &kept->array;
}

#if HIREDIS_MAJOR >= 1
static void *guard_array(const redisReadTask *task, size_t elements)
#else
static void *guard_array(const redisReadTask *task, int elements)
#endif
{
    if (nobody_asked(task) || elements > ELEMENTS_MAX)
        return NULL;
    void *array = kept_array(task, (size_t)elements);
    return array ? array : plain_of(task)->createArray(task, elements);
}

static void *guard_integer(const redisReadTask *task, long long value)
{
    struct redis_kept *kept = ((struct redis_guard *)task->privdata)->kept;

    if (nobody_asked(task))
        return NULL;
    if (!kept || !task->parent || task->parent->obj != &kept->array)
        return plain_of(task)->createInteger(task, value);
    redisReply *number = &kept->numbers[task->idx];
    number->type = REDIS_REPLY_INTEGER;
    number->integer = value;
    return kept->pointers[task->idx] = number;
}

static void *guard_nil(const redisReadTask *task)
{
    return nobody_asked(task) ? NULL : plain_of(task)->createNil(task);
}

#if HIREDIS_MAJOR >= 1
static void *guard_double(const redisReadTask *task, double value, char *bytes, size_t size)
{
    return nobody_asked(task) ? NULL : plain_of(task)->createDouble(task, value, bytes, size);
}

static void *guard_bool(const redisReadTask *task, int value)
{
    return nobody_asked(task) ? NULL : plain_of(task)->createBool(task, value);
}
#endif

static void free_kept(struct redis_kept *kept)
{
    for (size_t i = 0; i < kept->array.elements; i++)
        if (kept->pointers[i] && kept->pointers[i] != &kept->numbers[i])
            freeReplyObject(kept->pointers[i]);
    kept->taken = false;
}

static void free_object(void *object)
{
    redisReply *reply = object;

    if (reply && reply->type == REDIS_REPLY_ARRAY && reply->integer == KEPT_SIGN)
        free_kept((struct redis_kept *)reply);
    else
        freeReplyObject(reply);
}

void redis_guard(struct redis_guard *guard, redisReader *reader, const unsigned *unanswered)
{
    guard->plain = reader->fn;
    guard->guarded = *reader->fn;
    guard->guarded.createString = guard_string;
    guard->guarded.createArray = guard_array;
    guard->guarded.createInteger = guard_integer;
    guard->guarded.createNil = guard_nil;
#if HIREDIS_MAJOR >= 1
    guard->guarded.createDouble = guard_double;
    guard->guarded.createBool = guard_bool;
#endif
    guard->guarded.freeObject = free_object;
    guard->unanswered = unanswered;
    guard->extra_answer = false;
    reader->fn = &guard->guarded;
    reader->privdata = guard;
}

void redis_guard_keep(struct redis_guard *guard)
{
    if (!guard->kept)
        guard->kept = calloc(1, sizeof *guard->kept); /* on failure, replies are allocated */
    else
        guard->kept->taken = false;
}

void redis_guard_free(struct redis_guard *guard)
{
    free(guard->kept);
    guard->kept = NULL;
}
