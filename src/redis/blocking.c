/* blocking.c - a redis_connection with an event loop of its own, which runs while a caller
 * waits. */
#include "redis/blocking.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/event_timer.h"
#include "redis/cluster_map.h"
#include "redis/failure.h"
#include "redis/redis_connection.h"
#include "redis/sentinel.h"

struct redis_blocking {
    struct event_base *base;
    struct event *timer;
    struct redis_connection *connection;
    struct address address;
    unsigned slot;
    uint64_t timeout_us;
    struct redis_reply reply;
    bool answered, ended, timed_out;
    char error[REDIS_WHY_MAX];
};

static void on_received(void *context, struct redis_reply *reply)
{
    struct redis_blocking *redis = context;

    redis_reply_clear(&redis->reply);
    redis_reply_move(&redis->reply, reply);
    redis->answered = true;
}

static void on_lost(void *context, const char *why)
{
    struct redis_blocking *redis = context;

    redis->ended = true;
    snprintf(redis->error, sizeof redis->error, "%s", why);
}

static void on_timeout(evutil_socket_t fd, short what, void *arg)
{
    struct redis_blocking *redis = arg;
    (void)fd, (void)what;
    redis->timed_out = true;
}

void redis_blocking_free(struct redis_blocking *redis)
{
    if (!redis)
        return;
    redis_connection_free(redis->connection);
    redis_reply_clear(&redis->reply);
    event_drop(redis->timer);
    if (redis->base)
        event_base_free(redis->base);
    free(redis);
}

const char *redis_blocking_error(const struct redis_blocking *redis)
{
    return redis->error;
}

const struct address *redis_blocking_address(const struct redis_blocking *redis)
{
    return &redis->address;
}

unsigned redis_blocking_slot(const struct redis_blocking *redis)
{
    return redis->slot;
}

/* --- Commands --------------------------------------------------------------------------------- */

bool redis_command_begin(struct redis_blocking *redis, int argc, const char *const *argv,
                         const size_t *sizes)
{
    redis->answered = false;
    if (!redis->ended && redis_connection_send(redis->connection, argc, argv, sizes))
        return true;
    if (!redis->ended)
        on_lost(redis, "no memory");
    return false;
}

enum redis_awaited redis_await(struct redis_blocking *redis, uint64_t us)
{
    redis->timed_out = false;
    event_timer_arm(redis->timer, us);
    while (!redis->answered && !redis->ended && !redis->timed_out)
        if (event_base_loop(redis->base, EVLOOP_ONCE) != 0)
            on_lost(redis, "the event loop failed");
    event_del(redis->timer);
    return redis->answered ? REDIS_AWAITED_REPLY
           : redis->ended  ? REDIS_AWAITED_END
                           : REDIS_AWAITED_NOTHING;
}

const struct redis_reply *redis_awaited_reply(const struct redis_blocking *redis)
{
    return &redis->reply;
}

const struct redis_reply *redis_command(struct redis_blocking *redis, int argc,
                                        const char *const *argv, const size_t *sizes)
{
    if (!redis_command_begin(redis, argc, argv, sizes))
        return NULL;
    enum redis_awaited awaited = redis_await(redis, redis->timeout_us);
    if (awaited ==
        REDIS_AWAITED_NOTHING) /* a late reply would be taken for that of the next command */
        on_lost(redis, redis_connection_timeout(redis->connection));
    return awaited == REDIS_AWAITED_REPLY ? &redis->reply : NULL;
}

/* --- Connecting ------------------------------------------------------------------------------- */

static bool begin_connecting(struct redis_blocking *redis, const struct redis_settings *settings)
{
    const struct redis_connection_callbacks callbacks = {on_received, on_lost, redis};

    if (!(redis->base = event_base_new()) ||
        !(redis->timer = evtimer_new(redis->base, on_timeout, redis)))
        return false;
    redis->connection =
        redis_connection_new(redis->base, settings, &redis->address, NULL, NULL, &callbacks);
    return redis->connection != NULL;
}

/* Returns false and sets `why` if the command fails. */
static bool went_well(struct redis_blocking *redis, int argc, const char *const *argv, char *why)
{
    const struct redis_reply *reply = redis_command(redis, argc, argv, NULL);

    if (!reply || reply->type == RESP_ERROR)
        snprintf(why, REDIS_WHY_MAX, "%s", reply ? reply->text.p : redis->error);
    return reply && reply->type != RESP_ERROR;
}

/* Without a password, any reply shows that the server is there, even most errors. */
static bool log_in(struct redis_blocking *redis, const char *username, const char *password,
                   char *why)
{
    if (username && password)
        return went_well(redis, 3, (const char *[]){"AUTH", username, password}, why);
    if (password)
        return went_well(redis, 2, (const char *[]){"AUTH", password}, why);
    if (went_well(redis, 1, (const char *[]){"PING"}, why))
        return true;
    enum redis_failure failure = redis_failure_of(why);
    return !redis->ended && failure != REDIS_FAILURE_CLIENTS && failure != REDIS_FAILURE_PROTECTED;
}

static bool select_database(struct redis_blocking *redis, const struct redis_settings *s, char *why)
{
    char number[24];

    if (s->database == 0)
        return true;
    snprintf(number, sizeof number, "%u", s->database);
    return went_well(redis, 2, (const char *[]){"SELECT", number}, why);
}

/* Returns a connection that is logged in, or NULL with `why`. */
static struct redis_blocking *dial_as(const struct redis_settings *settings,
                                      const struct address *address, const char *username,
                                      const char *password, uint64_t timeout_us, char *why)
{
    struct redis_blocking *redis = calloc(1, sizeof *redis);

    snprintf(why, REDIS_WHY_MAX, "no address, or out of memory");
    if (!redis || !address->length) {
        free(redis);
        return NULL;
    }
    redis->address = *address;
    redis->timeout_us = timeout_us;
    errno = 0;
    if (!begin_connecting(redis, settings))
        snprintf(why, REDIS_WHY_MAX, "%s", strerror(errno ? errno : ENOMEM));
    else if (log_in(redis, username, password, why))
        return redis;
    redis_blocking_free(redis);
    return NULL;
}

/* --- Sentinels -------------------------------------------------------------------------------- */

static const char *trouble_of(const struct redis_blocking *sentinel,
                              const struct redis_reply *reply)
{
    return !reply                      ? sentinel->error
           : reply->type == RESP_ERROR ? reply->text.p
           : reply->type == RESP_NIL   ? "it has no master of this name"
                                       : "it gives an invalid address for the master";
}

static bool query_sentinel(const struct redis_settings *s, const struct redis_node *node,
                           uint64_t timeout_us, struct address *master, char *why)
{
    const char *argv[] = {"SENTINEL", "GET-MASTER-ADDR-BY-NAME", s->sentinel.master};
    char trouble[REDIS_WHY_MAX];
    struct redis_blocking *sentinel =
        dial_as(s, &node->address, s->sentinel.username, s->sentinel.password, timeout_us, trouble);
    const struct redis_reply *reply =
        sentinel ? redis_command(sentinel, COUNT_OF(argv), argv, NULL) : NULL;
    struct slice host, port;
    bool found =
        redis_reply_read(reply, "ss", &host, &port) && redis_sentinel_address(host, port, master);

    if (!found)
        snprintf(why, REDIS_WHY_MAX, "sentinel %.64s: %.80s", node->text,
                 sentinel ? trouble_of(sentinel, reply) : trouble);
    redis_blocking_free(sentinel);
    return found;
}

/* If the user may not run ROLE, the sentinel's reply is trusted. */
static bool is_replica(struct redis_blocking *redis)
{
    const struct redis_reply *reply = redis_command(redis, 1, (const char *[]){"ROLE"}, NULL);
    return reply && redis_is_replica(reply);
}

/* Connects to the master that the first working sentinel names. */
static struct redis_blocking *dial_master(const struct redis_settings *s, uint64_t timeout_us,
                                          char *why)
{
    for (unsigned i = 0; i < s->sentinel.nodes.count; i++) {
        struct address master;
        struct redis_blocking *redis;
        if (!query_sentinel(s, &s->sentinel.nodes.node[i], timeout_us, &master, why) ||
            !(redis = dial_as(s, &master, s->username, s->password, timeout_us, why)))
            continue;
        if (!is_replica(redis))
            return redis;
        snprintf(why, REDIS_WHY_MAX, "sentinel %s names a replica", s->sentinel.nodes.node[i].text);
        redis_blocking_free(redis);
    }
    return NULL;
}

/* --- Host name -------------------------------------------------------------------------------- */

/* Connects to the first address that works and is no replica, as a running weir does in the end.
 * Blocks while the name is resolved. */
static struct redis_blocking *dial_host(const struct redis_settings *s, uint64_t timeout_us,
                                        char *why)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    struct redis_blocking *redis = NULL;
    int failure = getaddrinfo(s->host, NULL, &hints, &found);

    snprintf(why, REDIS_WHY_MAX, "%s", gai_strerror(failure));
    for (const struct addrinfo *a = failure ? NULL : found; a && !redis; a = a->ai_next) {
        struct address address = {.length = a->ai_addrlen};
        memcpy(&address.any, a->ai_addr, a->ai_addrlen);
        address.v4.sin_port = htons(s->port); /* sin6_port is in the same place */
        redis = dial_as(s, &address, s->username, s->password, timeout_us, why);
        if (redis && is_replica(redis)) {
            snprintf(why, REDIS_WHY_MAX, "its role is replica");
            redis_blocking_free(redis);
            redis = NULL;
        }
    }
    if (!failure)
        freeaddrinfo(found);
    return redis;
}

/* --- Cluster ---------------------------------------------------------------------------------- */

static bool query_node(const struct redis_settings *s, const struct redis_node *node,
                       uint64_t timeout_us, struct redis_cluster_map *map, char *why)
{
    char trouble[REDIS_WHY_MAX];
    struct redis_blocking *redis =
        dial_as(s, &node->address, s->username, s->password, timeout_us, trouble);
    const struct redis_reply *reply =
        redis ? redis_command(redis, 2, (const char *[]){"CLUSTER", "SLOTS"}, NULL) : NULL;
    const char *what = redis ? redis->error : trouble;
    bool good = reply && redis_cluster_map_read(reply, &node->address, map, &what);

    if (!good)
        snprintf(why, REDIS_WHY_MAX, "node %.64s: %.80s", node->text, what);
    redis_blocking_free(redis);
    return good;
}

/* Returns the slot map (malloc'ed), or NULL with `why`. */
static struct redis_cluster_map *query_map(const struct redis_settings *s, uint64_t timeout_us,
                                           char *why)
{
    struct redis_cluster_map *map = malloc(sizeof *map);

    snprintf(why, REDIS_WHY_MAX, "no memory");
    for (unsigned i = 0; map && i < s->cluster.count; i++)
        if (query_node(s, &s->cluster.node[i], timeout_us, map, why))
            return map;
    free(map);
    return NULL;
}

/* Returns the first slot of the node. Each node of a map serves one. */
static unsigned slot_of_node(const struct redis_cluster_map *map, unsigned node)
{
    unsigned slot = 0;

    while (slot < REDIS_SLOTS - 1 && map->of_slot[slot] != node + 1)
        slot++;
    return slot;
}

/* Puts the node's address in front of the cause, unless that is an error reply, by whose beginning
 * its remedy is found. */
static void name_node(const struct address *node, char *why)
{
    char text[ADDRESS_TEXT_MAX], cause[REDIS_WHY_MAX];

    if (redis_failure_of(why) != REDIS_FAILURE_SCRIPT)
        return;
    snprintf(cause, sizeof cause, "%s", why);
    snprintf(why, REDIS_WHY_MAX, "node %.64s: %.80s", address_format(node, text), cause);
}

/* Connects to a node of the map and frees the map. `node` < 0: there is none, and `absent` is
 * the error text. */
static struct redis_blocking *dial_node(const struct redis_settings *s,
                                        struct redis_cluster_map *map, int node, const char *absent,
                                        uint64_t timeout_us, char *why)
{
    struct redis_blocking *redis = NULL;

    if (node >= 0)
        redis = dial_as(s, &map->nodes[node], s->username, s->password, timeout_us, why);
    else
        snprintf(why, REDIS_WHY_MAX, "%s", absent);
    if (redis)
        redis->slot = slot_of_node(map, (unsigned)node);
    else if (node >= 0)
        name_node(&map->nodes[node], why);
    free(map);
    return redis;
}

struct redis_blocking *redis_dial_slot(const struct redis_settings *s, unsigned slot,
                                       uint64_t timeout_us, char why[static REDIS_WHY_MAX])
{
    struct redis_cluster_map *map;

    if (!s->cluster.count)
        return redis_dial(s, timeout_us, why);
    if (!(map = query_map(s, timeout_us, why)))
        return NULL;
    return dial_node(s, map, map->of_slot[slot] - 1, "no node has the slot", timeout_us, why);
}

struct redis_blocking *redis_dial_part(const struct redis_settings *s, unsigned part,
                                       unsigned *parts, uint64_t timeout_us,
                                       char why[static REDIS_WHY_MAX])
{
    struct redis_cluster_map *map;

    *parts = 1;
    if (!s->cluster.count)
        return redis_dial(s, timeout_us, why);
    if (!(map = query_map(s, timeout_us, why)))
        return NULL;
    *parts = map->node_count;
    return dial_node(s, map, part < map->node_count ? (int)part : -1,
                     "the cluster has changed in the meantime; try again", timeout_us, why);
}

struct redis_blocking *redis_dial(const struct redis_settings *s, uint64_t timeout_us,
                                  char why[static REDIS_WHY_MAX])
{
    struct redis_blocking *redis =
        s->sentinel.master ? dial_master(s, timeout_us, why)
        : s->host          ? dial_host(s, timeout_us, why)
                           : dial_as(s, &s->address, s->username, s->password, timeout_us, why);

    if (redis && select_database(redis, s, why))
        return redis;
    redis_blocking_free(redis);
    return NULL;
}
