#include "redis/redis_reply_reader.h"

#include <stdlib.h>

enum {
    ARRAY_MAX = 65536, /* elements; a decision's reply has a few thousand at most */
    REPLY_MAX = 524288,
    TEXTS_MAX = 16 << 20, /* bytes: grants, or the map of a very large cluster */
    PREALLOCATED_MAX = 1024,
};

_Static_assert(RESP_STRING == (int)REDIS_REPLY_STRING && RESP_ARRAY == (int)REDIS_REPLY_ARRAY &&
                   RESP_INTEGER == (int)REDIS_REPLY_INTEGER && RESP_NIL == (int)REDIS_REPLY_NIL &&
                   RESP_STATUS == (int)REDIS_REPLY_STATUS && RESP_ERROR == (int)REDIS_REPLY_ERROR,
               "hiredis reads the type of a reply");

/* Storage for one array, without an allocation per reply. The elements of earlier replies stay in
 * it, cleared of texts and arrays. */
struct preallocated_reply {
    struct redis_reply array; /* must be first: cast from struct redis_reply */
    struct redis_reply elements[PREALLOCATED_MAX];
    bool taken;
};

static struct redis_reply_reader *reader_of(const redisReadTask *task)
{
    return task->privdata;
}

/* Returns where the task's value belongs: in its array, or in a new reply. NULL: refused, or no
 * memory. */
static struct redis_reply *room_for(const redisReadTask *task)
{
    struct redis_reply_reader *own = reader_of(task);

    if (task->parent)
        return &((struct redis_reply *)task->parent->obj)->elements[task->idx];
    own->elements = own->text_bytes = 0;
    if (*own->unanswered > 0)
        return calloc(1, sizeof(struct redis_reply));
    own->unsolicited = true;
    return NULL;
}

/* The reader frees nothing that was refused: frees a reply that cannot be completed. */
static void *drop_reply(const redisReadTask *task, struct redis_reply *reply)
{
    if (!task->parent)
        free(reply);
    return NULL;
}

static void *build_text(const redisReadTask *task, char *bytes, size_t size)
{
    struct redis_reply_reader *own = reader_of(task);
    struct redis_reply *reply = room_for(task);
    char *copy;

    own->text_bytes += size;
    copy = reply && own->text_bytes <= TEXTS_MAX ? malloc(size + 1) : NULL;
    if (!copy)
        return drop_reply(task, reply);
    memcpy(copy, bytes, size);
    copy[size] = 0;
    reply->type = task->type <= RESP_ERROR ? task->type : RESP_STRING;
    reply->integer = 0;
    reply->text = (struct slice){copy, size};
    return reply;
}

/* Returns the buffer if `task` is a reply that fits and the buffer is free; else NULL. */
static struct redis_reply *take_preallocated(const redisReadTask *task, size_t count)
{
    struct redis_reply_reader *own = reader_of(task);
    struct preallocated_reply *p = own->preallocated;

    if (!p || p->taken || task->parent || count > PREALLOCATED_MAX || *own->unanswered == 0)
        return NULL;
    p->taken = true;
    p->array = (struct redis_reply){
        .type = RESP_ARRAY, .preallocated = true, .count = count, .elements = p->elements};
    own->elements = count;
    own->text_bytes = 0;
    return &p->array;
}

#if HIREDIS_MAJOR >= 1
static void *build_array(const redisReadTask *task, size_t count)
#else
static void *build_array(const redisReadTask *task, int count)
#endif
{
    struct redis_reply_reader *own = reader_of(task);
    struct redis_reply *reply = take_preallocated(task, (size_t)count);

    if (reply)
        return reply;
    if (!(reply = room_for(task)))
        return NULL;
    own->elements += (size_t)count;
    if (count > ARRAY_MAX || own->elements > REPLY_MAX ||
        (count && !(reply->elements = calloc((size_t)count, sizeof *reply))))
        return drop_reply(task, reply);
    reply->type = RESP_ARRAY;
    reply->integer = 0;
    reply->count = (size_t)count;
    return reply;
}

static void *build_integer(const redisReadTask *task, long long value)
{
    struct redis_reply *reply = room_for(task);

    if (!reply)
        return NULL;
    reply->type = RESP_INTEGER;
    reply->integer = value;
    return reply;
}

static void *build_nil(const redisReadTask *task)
{
    struct redis_reply *reply = room_for(task);

    if (reply)
        *reply = (struct redis_reply){.type = RESP_NIL};
    return reply;
}

#if HIREDIS_MAJOR >= 1
/* RESP3 only, which weir does not request. */
static void *build_double(const redisReadTask *task, double value, char *bytes, size_t size)
{
    (void)value;
    return build_text(task, bytes, size);
}

static void *build_bool(const redisReadTask *task, int value)
{
    return build_integer(task, value);
}
#endif

static void free_preallocated(struct preallocated_reply *p)
{
    for (size_t i = 0; i < p->array.count; i++)
        if (p->elements[i].type != RESP_INTEGER)
            redis_reply_clear(&p->elements[i]);
    p->taken = false;
}

void redis_reply_free(struct redis_reply *reply)
{
    if (reply && reply->preallocated)
        free_preallocated((struct preallocated_reply *)reply);
    else if (reply) {
        redis_reply_clear(reply);
        free(reply);
    }
}

static void free_object(void *object)
{
    redis_reply_free(object);
}

void redis_reply_reader_install(struct redis_reply_reader *own, redisReader *reader,
                                const unsigned *unanswered)
{
    own->functions = (redisReplyObjectFunctions)
    {
        .createString = build_text, .createArray = build_array, .createInteger = build_integer,
        .createNil = build_nil,
#if HIREDIS_MAJOR >= 1
        .createDouble = build_double, .createBool = build_bool,
#endif
        .freeObject = free_object
    };
    own->unanswered = unanswered;
    own->unsolicited = false;
    own->elements = own->text_bytes = 0;
    reader->fn = &own->functions;
    reader->privdata = own;
}

void redis_reply_reader_keep(struct redis_reply_reader *own)
{
    if (!own->preallocated)
        own->preallocated =
            calloc(1, sizeof *own->preallocated); /* on failure, replies are allocated */
    else
        own->preallocated->taken = false;
}

void redis_reply_reader_free(struct redis_reply_reader *own)
{
    free(own->preallocated);
    own->preallocated = NULL;
}
