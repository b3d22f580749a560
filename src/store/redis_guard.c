#include "store/redis_guard.h"

enum { ELEMENTS_MAX = 65536 }; /* of an array: a decision's answer has some thousand at most */

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

#if HIREDIS_MAJOR >= 1
static void *guard_array(const redisReadTask *task, size_t elements)
#else
static void *guard_array(const redisReadTask *task, int elements)
#endif
{
    return nobody_asked(task) || elements > ELEMENTS_MAX ? NULL : plain_of(task)->createArray(task, elements);
}

static void *guard_integer(const redisReadTask *task, long long value)
{
    return nobody_asked(task) ? NULL : plain_of(task)->createInteger(task, value);
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
    guard->unanswered = unanswered;
    guard->extra_answer = false;
    reader->fn = &guard->guarded;
    reader->privdata = guard;
}
