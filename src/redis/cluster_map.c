#include "redis/cluster_map.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/event_timer.h"
#include "base/log.h"
#include "base/magic.h"
#include "redis/failure.h"
#include "redis/redis_connection.h"

enum {
    READER_MAGIC = 0x4d415052,
    KNOWN_MAX = 2 * REDIS_CLUSTER_MAP_NODES_MAX + 64,
    ANSWER_US = 500000, /* timeout of connect and reply */
    HURRY_US = 200000,
    WANT_US = 1000000,
    IDLE_US = 30000000,
};

/* --- Decoding CLUSTER SLOTS ------------------------------------------------------------------- */

/* [ host or nil, port, id, ... ] */
static bool read_node(const struct redis_reply *reply, const struct address *answered,
                      struct address *address)
{
    char digits[24];
    struct text port_text = text_over(digits, sizeof digits);
    const struct redis_reply *host;
    int64_t port;

    if (!redis_reply_read(reply, "*i+", &host, &port))
        return false;
    text_i64(&port_text, port);
    return redis_node_read(host->text, text_slice(&port_text), answered, address);
}

/* Adds the address, unless present. Returns its position in the list from 1; 0: the list is
 * full. */
static unsigned add_address(struct address *list, unsigned *count, unsigned max,
                            const struct address *address)
{
    for (unsigned i = 0; i < *count; i++)
        if (address_same(&list[i], address))
            return i + 1;
    if (*count == max)
        return 0;
    list[(*count)++] = *address;
    return *count;
}

/* [ first, last, master, replica... ] */
static bool read_range(const struct redis_reply *range, const struct address *answered,
                       struct redis_cluster_map *map, const char **why)
{
    const struct redis_reply *master;
    struct address address;
    int64_t first, last;
    unsigned node;

    *why = "a reply in an unexpected format";
    if (!redis_reply_read(range, "ii*+", &first, &last, &master) || first < 0 || first > last ||
        last >= REDIS_SLOTS)
        return false;
    *why = "it gives an invalid address for a node; configure it to announce addresses "
           "(cluster-preferred-endpoint-type ip)";
    if (!read_node(master, answered, &address))
        return false;
    *why = "more masters than weir supports";
    if (!(node = add_address(map->nodes, &map->node_count, REDIS_CLUSTER_MAP_NODES_MAX, &address)))
        return false;
    for (int64_t slot = first; slot <= last; slot++) {
        map->slot_count += map->of_slot[slot] == 0;
        map->of_slot[slot] = (uint16_t)node;
    }
    for (size_t i = 3; i < range->count; i++)
        if (read_node(&range->elements[i], answered, &address))
            (void)add_address(map->replicas, &map->replica_count, REDIS_CLUSTER_MAP_NODES_MAX,
                              &address);
    return true;
}

bool redis_cluster_map_read(const struct redis_reply *reply, const struct address *answered,
                            struct redis_cluster_map *map, const char **why)
{
    memset(map, 0, sizeof *map);
    *why = "a reply in an unexpected format";
    if (reply->type == RESP_ERROR)
        *why = strstr(reply->text.p, "cluster support disabled")
                   ? "it is not a cluster node; use redis.address"
                   : reply->text.p;
    if (reply->type != RESP_ARRAY)
        return false;
    for (size_t i = 0; i < reply->count; i++)
        if (!read_range(&reply->elements[i], answered, map, why))
            return false;
    *why = "no slot is assigned";
    return map->slot_count > 0;
}

/* --- Periodic reads --------------------------------------------------------------------------- */

struct redis_cluster_map_reader {
    uint32_t magic;
    struct event_base *base;
    const struct redis_settings *settings;
    void (*read)(void *context, const struct redis_cluster_map *map);
    void *context;
    struct address known[KNOWN_MAX]; /* nodes of the policy first, then those of the last map */
    unsigned known_count, next;
    struct address queried;
    struct redis_connection *connection; /* NULL: no query is in flight */
    struct event *timer;                 /* timeout of the query, or start of the next one */
    uint64_t read_us;                    /* when the last query began */
    bool wanted, hurry;
    unsigned failed;          /* consecutive failed nodes */
    enum redis_failure cause; /* of the last one */
    struct redis_cluster_map map;
};

/* Bit set of the causes that were logged since no node returns the map: each once for all
 * threads. */
static atomic_uint logged_causes;

static uint64_t pause_of(const struct redis_cluster_map_reader *r)
{
    return r->hurry ? HURRY_US : r->wanted ? WANT_US : IDLE_US;
}

/* Arms the timer for the next query, unless one is in flight. */
static void arm_next(struct redis_cluster_map_reader *r)
{
    uint64_t now = clock_us(), at = r->read_us + pause_of(r), us = at > now ? at - now : 0;

    if (!r->connection)
        event_timer_arm(r->timer, us);
}

static void drop_node(struct redis_cluster_map_reader *r)
{
    redis_connection_free(r->connection);
    r->connection = NULL;
    arm_next(r);
}

/* `cause` counts unless `why` is an error reply that names another one. */
static void try_next_node(struct redis_cluster_map_reader *r, enum redis_failure cause,
                          const char *why)
{
    enum redis_failure told = redis_failure_of(why); /* SCRIPT: no known error reply */
    bool known = told != REDIS_FAILURE_SCRIPT;
    bool general = !known && (cause == REDIS_FAILURE_CONNECT || cause == REDIS_FAILURE_CLUSTER);
    char text[ADDRESS_TEXT_MAX];

    r->wanted = true;
    r->cause = known ? told : cause;
    if (++r->failed >= r->known_count &&
        !(atomic_fetch_or(&logged_causes, 1u << r->cause) & 1u << r->cause))
        log_error("redis %s: none of %u nodes returns the slot map (the last, %s: %s); %s",
                  r->settings->address_text, r->known_count, address_format(&r->queried, text), why,
                  general ? "check redis.cluster and that they run"
                          : redis_failure_remedy(r->cause, r->settings));
    drop_node(r);
}

static void update_known_nodes(struct redis_cluster_map_reader *r)
{
    unsigned count = r->settings->cluster.count;

    r->known_count = count;
    for (unsigned i = 0; i < r->map.node_count; i++)
        (void)add_address(r->known, &r->known_count, KNOWN_MAX, &r->map.nodes[i]);
    for (unsigned i = 0; i < r->map.replica_count; i++)
        (void)add_address(r->known, &r->known_count, KNOWN_MAX, &r->map.replicas[i]);
}

static void on_received(void *context, struct redis_reply *reply)
{
    struct redis_cluster_map_reader *r = context;
    char text[ADDRESS_TEXT_MAX];
    const char *why;

    MAGIC_CHECK(r, READER_MAGIC);
    if (!redis_cluster_map_read(reply, &r->queried, &r->map, &why)) {
        try_next_node(r, REDIS_FAILURE_CLUSTER, why);
        return;
    }
    if (atomic_exchange(&logged_causes, 0))
        log_info("redis %s: node %s returns the slot map again", r->settings->address_text,
                 address_format(&r->queried, text));
    r->failed = 0;
    r->wanted = false;
    update_known_nodes(r);
    drop_node(r);
    r->read(r->context, &r->map);
}

static void on_lost(void *context, const char *why)
{
    struct redis_cluster_map_reader *r = context;

    MAGIC_CHECK(r, READER_MAGIC);
    try_next_node(r, redis_connection_failure(r->connection, false), why);
}

static void read_next_node(struct redis_cluster_map_reader *r)
{
    const struct redis_connection_callbacks callbacks = {on_received, on_lost, r};

    r->read_us = clock_us();
    r->queried = r->known[r->next++ % r->known_count];
    r->connection = redis_connection_new(r->base, r->settings, &r->queried, r->settings->username,
                                         r->settings->password, &callbacks);
    if (!r->connection ||
        !redis_connection_send(r->connection, 2, (const char *[]){"CLUSTER", "SLOTS"}, NULL))
        try_next_node(r, REDIS_FAILURE_CONNECT, "the connection failed");
    else
        event_timer_arm(r->timer, ANSWER_US);
}

static void on_read_or_timeout(evutil_socket_t fd, short what, void *arg)
{
    struct redis_cluster_map_reader *r = arg;
    (void)fd, (void)what;

    MAGIC_CHECK(r, READER_MAGIC);
    if (r->connection)
        try_next_node(r, redis_connection_failure(r->connection, true),
                      redis_connection_timeout(r->connection));
    else
        read_next_node(r);
}

void redis_cluster_map_reader_want(struct redis_cluster_map_reader *r)
{
    r->wanted = true;
    arm_next(r);
}

void redis_cluster_map_reader_hurry(struct redis_cluster_map_reader *r, bool hurry)
{
    if (r->hurry == hurry)
        return;
    r->hurry = hurry;
    arm_next(r);
}

enum redis_failure redis_cluster_map_reader_cause(const struct redis_cluster_map_reader *r)
{
    return r->failed >= r->known_count ? r->cause : REDIS_OK_ANSWER;
}

/* --- Create and free -------------------------------------------------------------------------- */

struct redis_cluster_map_reader *
redis_cluster_map_reader_new(struct event_base *base, const struct redis_settings *settings,
                             void (*read)(void *context, const struct redis_cluster_map *map),
                             void *context)
{
    struct redis_cluster_map_reader *r = calloc(1, sizeof *r);
    static const struct timeval at_once = {0, 0};
    unsigned first = 0;

    if (!r)
        return NULL;
    MAGIC_SET(r, READER_MAGIC);
    r->base = base;
    r->settings = settings;
    r->read = read;
    r->context = context;
    for (unsigned i = 0; i < settings->cluster.count; i++)
        r->known[r->known_count++] = settings->cluster.node[i].address;
    /* random start: spreads threads and weir processes over the nodes */
    (void)!getrandom(&first, sizeof first, 0);
    assert(r->known_count > 0); /* the policy names at least one */
    r->next = first % r->known_count;
    r->hurry = true;
    r->timer = evtimer_new(base, on_read_or_timeout, r);
    if (r->timer && evtimer_add(r->timer, &at_once) == 0)
        return r;
    redis_cluster_map_reader_free(r);
    return NULL;
}

void redis_cluster_map_reader_free(struct redis_cluster_map_reader *r)
{
    if (!r)
        return;
    redis_connection_free(r->connection);
    event_drop(r->timer);
    MAGIC_WIPE(r);
    free(r);
}
