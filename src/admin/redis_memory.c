#include "admin/redis_memory.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/magic.h"

enum { MEMORY_MAGIC = 0x4d454d4f, FORGET_US = 60000000, TIMEOUT_US = 2000000 };

struct redis_memory {
    uint32_t magic;
    struct redis_client *store;
    struct redis_call call;
    struct event *next; /* queries the next node, outside the store's callbacks */
    bool under_way, refused;
    unsigned part;    /* node of the current or next query */
    uint64_t last_us; /* when the first node was last queried */
    /* address of the node; empty unless a cluster, because the master may change */
    char node[ADDRESS_TEXT_MAX];
};

const char redis_memory_script[] = "if ARGV[1] == 'memory' then\n"
                                   "  local info = redis.pcall('INFO', 'memory')\n"
                                   "  if type(info) ~= 'string' then return { -1, -1 } end\n"
                                   "  return { tonumber(info:match('used_memory:(%d+)')) or -1, "
                                   "tonumber(info:match('\\nmaxmemory:(%d+)')) or -1 }\n"
                                   "end\n";

static struct {
    struct redis_memory_part parts[REDIS_MEMORY_PARTS_MAX];
    unsigned count;
} known;

/* Returns the entry of a node, new or existing; NULL: the list is full. */
static struct redis_memory_part *node_memory(const char *node)
{
    for (unsigned i = 0; i < known.count; i++)
        if (strcmp(known.parts[i].node, node) == 0)
            return &known.parts[i];
    return known.count < REDIS_MEMORY_PARTS_MAX ? &known.parts[known.count++] : NULL;
}

static void keep_node_memory(const struct redis_memory *m, int64_t used, int64_t max)
{
    struct redis_memory_part *part = node_memory(m->node);

    if (!part)
        return;
    *part = (struct redis_memory_part){
        .used = (uint64_t)used, .max = (uint64_t)max, .at_us = clock_us()};
    memcpy(part->node, m->node, sizeof part->node);
}

static void on_info(struct redis_call *call, const struct redis_reply *reply,
                    enum redis_failure failure)
{
    struct redis_memory *m = CONTAINER_OF(call, struct redis_memory, call);
    int64_t used, max;
    (void)failure;

    MAGIC_CHECK(m, MEMORY_MAGIC);
    m->under_way = false;
    if (!redis_reply_read(reply, "ii", &used, &max))
        return;
    if (used < 0 || max < 0) {
        m->refused = true;
        return;
    }
    keep_node_memory(m, used, max);
    m->part++;
    event_active(m->next, EV_TIMEOUT, 1);
}

static void request_part(struct redis_memory *m)
{
    static const char *argv[] = {"0", "memory"};
    static const size_t sizes[] = {1, 6};

    m->call = (struct redis_call){.done = on_info};
    if (!redis_client_call_part(m->store, m->part, &m->call, 2, argv, sizes))
        return;
    m->under_way = true;
    if (redis_client_has_slots(m->store) && m->call.link)
        snprintf(m->node, sizeof m->node, "%s", redis_link_address(m->call.link));
    redis_client_flush(m->store);
}

static void on_next(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    redis_memory_look(arg);
}

void redis_memory_look(struct redis_memory *m)
{
    uint64_t now = clock_us();

    if (m->under_way && now - m->call.sent_us > TIMEOUT_US)
        redis_client_note_timeout(&m->call);
    if (m->under_way || m->refused || !redis_client_is_ready(m->store))
        return;
    if (m->part >= redis_client_parts(m->store)) {
        if (now - m->last_us < REDIS_MEMORY_EVERY_US)
            return;
        m->part = 0;
    }
    if (m->part == 0)
        m->last_us = now;
    request_part(m);
}

void redis_memory_reconnected(struct redis_memory *m)
{
    m->refused = false;
    m->part = 0;
    redis_memory_look(m);
}

unsigned redis_memory_parts(const struct redis_memory_part **parts)
{
    uint64_t now = clock_us();

    for (unsigned i = 0; i < known.count;)
        if (now - known.parts[i].at_us > FORGET_US)
            known.parts[i] = known.parts[--known.count];
        else
            i++;
    *parts = known.parts;
    return known.count;
}

struct redis_memory *redis_memory_new(struct event_base *base, struct redis_client *store)
{
    struct redis_memory *m = calloc(1, sizeof *m);

    if (!m || !(m->next = event_new(base, -1, 0, on_next, m))) {
        free(m);
        return NULL;
    }
    MAGIC_SET(m, MEMORY_MAGIC);
    m->store = store;
    known.count = 0; /* may belong to another Redis */
    return m;
}

void redis_memory_free(struct redis_memory *m)
{
    if (!m)
        return;
    event_free(m->next);
    MAGIC_WIPE(m);
    free(m);
}
