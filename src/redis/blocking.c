#include "redis/blocking.h"

#include <stdlib.h>

#include "base/event_timer.h"
#include "redis/cluster_map.h"
#include "redis/sentinel.h"

static redisContext *dial(const struct address *address, struct timeval patience)
{
    char text[ADDRESS_TEXT_MAX], *port;

    if (address_is_unix(address))
        return redisConnectUnixWithTimeout(address->local.sun_path, patience);
    address_format(address, text);
    port = strrchr(text, ':');
    *port++ = 0;
    if (text[0] == '[') { /* "[::1" without its closing bracket */
        port[-2] = 0;
        return redisConnectWithTimeout(text + 1, atoi(port), patience);
    }
    return redisConnectWithTimeout(text, atoi(port), patience);
}

/* Frees the reply. Returns false and sets `why` if it is an error. */
static bool went_well(const redisContext *redis, redisReply *reply, char *why)
{
    bool good = reply && reply->type != REDIS_REPLY_ERROR;

    if (!good)
        snprintf(why, REDIS_WHY_MAX, "%s", reply ? reply->str : redis->errstr);
    freeReplyObject(reply);
    return good;
}

static bool log_in(redisContext *redis, const char *username, const char *password, char *why)
{
    if (!password)
        return true;
    return went_well(redis,
                     username ? redisCommand(redis, "AUTH %s %s", username, password)
                              : redisCommand(redis, "AUTH %s", password),
                     why);
}

static bool select_database(redisContext *redis, const struct redis_settings *s, char *why)
{
    return s->database == 0 || went_well(redis, redisCommand(redis, "SELECT %u", s->database), why);
}

/* Returns a connection that is logged in, or NULL with `why`. */
static redisContext *dial_as(const struct address *address, const char *username, const char *password,
                             struct timeval patience, char *why)
{
    redisContext *redis = address->length ? dial(address, patience) : NULL;

    snprintf(why, REDIS_WHY_MAX, "%s", redis ? redis->errstr : "no address, or no memory");
    if (redis && !redis->err && redisSetTimeout(redis, patience) == REDIS_OK &&
        log_in(redis, username, password, why))
        return redis;
    if (redis)
        redisFree(redis);
    return NULL;
}

/* --- Sentinels -------------------------------------------------------------------------------- */

static bool is_address(const redisReply *reply, struct address *address)
{
    return reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 &&
           reply->element[0]->type == REDIS_REPLY_STRING && reply->element[1]->type == REDIS_REPLY_STRING &&
           redis_sentinel_address((struct slice){reply->element[0]->str, (size_t)reply->element[0]->len},
                                  (struct slice){reply->element[1]->str, (size_t)reply->element[1]->len},
                                  address);
}

static const char *trouble_of(const redisContext *sentinel, const redisReply *reply)
{
    return !reply                             ? sentinel->errstr
           : reply->type == REDIS_REPLY_ERROR ? reply->str
           : reply->type == REDIS_REPLY_NIL   ? "it knows no master of this name"
                                              : "it names the master by what is no address";
}

static bool ask_sentinel(const struct redis_sentinel_settings *s, const struct redis_node *node,
                         struct timeval patience, struct address *master, char *why)
{
    char trouble[REDIS_WHY_MAX];
    redisContext *sentinel = dial_as(&node->address, s->username, s->password, patience, trouble);
    redisReply *reply =
        sentinel ? redisCommand(sentinel, "SENTINEL GET-MASTER-ADDR-BY-NAME %s", s->master) : NULL;
    bool found = reply && is_address(reply, master);

    if (!found)
        snprintf(why, REDIS_WHY_MAX, "sentinel %.64s: %.80s", node->text,
                 sentinel ? trouble_of(sentinel, reply) : trouble);
    freeReplyObject(reply);
    if (sentinel)
        redisFree(sentinel);
    return found;
}

/* If the user may not run ROLE, the sentinel's reply is trusted. */
static bool is_replica(redisContext *redis)
{
    redisReply *reply = redisCommand(redis, "ROLE");
    bool replica = reply && reply->type == REDIS_REPLY_ARRAY && reply->elements > 0 &&
                   reply->element[0]->type == REDIS_REPLY_STRING &&
                   strcmp(reply->element[0]->str, "slave") == 0;

    freeReplyObject(reply);
    return replica;
}

/* Connects to the master that the first working sentinel names. */
static redisContext *dial_master(const struct redis_settings *s, struct timeval patience, char *why)
{
    for (unsigned i = 0; i < s->sentinel.nodes.count; i++) {
        struct address master;
        redisContext *redis;
        if (!ask_sentinel(&s->sentinel, &s->sentinel.nodes.node[i], patience, &master, why) ||
            !(redis = dial_as(&master, s->username, s->password, patience, why)))
            continue;
        if (!is_replica(redis))
            return redis;
        snprintf(why, REDIS_WHY_MAX, "sentinel %s names a replica", s->sentinel.nodes.node[i].text);
        redisFree(redis);
    }
    return NULL;
}

/* --- Cluster ---------------------------------------------------------------------------------- */

static bool ask_node(const struct redis_settings *s, const struct redis_node *node, struct timeval patience,
                     struct redis_cluster_map *map, char *why)
{
    char trouble[REDIS_WHY_MAX];
    redisContext *redis = dial_as(&node->address, s->username, s->password, patience, trouble);
    redisReply *reply = redis ? redisCommand(redis, "CLUSTER SLOTS") : NULL;
    const char *what = redis ? redis->errstr : trouble;
    bool good = reply && redis_cluster_map_read(reply, &node->address, map, &what);

    if (!good)
        snprintf(why, REDIS_WHY_MAX, "node %.64s: %.80s", node->text, what);
    freeReplyObject(reply);
    if (redis)
        redisFree(redis);
    return good;
}

/* Returns the slot map (malloc'ed), or NULL with `why`. */
static struct redis_cluster_map *ask_map(const struct redis_settings *s, struct timeval patience, char *why)
{
    struct redis_cluster_map *map = malloc(sizeof *map);

    snprintf(why, REDIS_WHY_MAX, "no memory");
    for (unsigned i = 0; map && i < s->cluster.count; i++)
        if (ask_node(s, &s->cluster.node[i], patience, map, why))
            return map;
    free(map);
    return NULL;
}

/* Connects to a node of the map and frees the map. `node` < 0: there is none, and `absent` is
 * the error text. */
static redisContext *dial_node(const struct redis_settings *s, struct redis_cluster_map *map, int node,
                               const char *absent, struct timeval patience, char *why)
{
    redisContext *redis = NULL;

    if (node >= 0)
        redis = dial_as(&map->nodes[node], s->username, s->password, patience, why);
    else
        snprintf(why, REDIS_WHY_MAX, "%s", absent);
    free(map);
    return redis;
}

redisContext *redis_dial_slot(const struct redis_settings *s, unsigned slot, uint64_t timeout_us,
                              char why[static REDIS_WHY_MAX])
{
    struct timeval patience = timeval_of_us(timeout_us);
    struct redis_cluster_map *map;

    if (!s->cluster.count)
        return redis_dial(s, timeout_us, why);
    if (!(map = ask_map(s, patience, why)))
        return NULL;
    return dial_node(s, map, map->of_slot[slot] - 1, "no node has the slot", patience, why);
}

redisContext *redis_dial_part(const struct redis_settings *s, unsigned part, unsigned *parts,
                              uint64_t timeout_us, char why[static REDIS_WHY_MAX])
{
    struct timeval patience = timeval_of_us(timeout_us);
    struct redis_cluster_map *map;

    *parts = 1;
    if (!s->cluster.count)
        return redis_dial(s, timeout_us, why);
    if (!(map = ask_map(s, patience, why)))
        return NULL;
    *parts = map->node_count;
    return dial_node(s, map, part < map->node_count ? (int)part : -1,
                     "the cluster has changed meanwhile; try again", patience, why);
}

redisContext *redis_dial(const struct redis_settings *settings, uint64_t timeout_us,
                         char why[static REDIS_WHY_MAX])
{
    struct timeval patience = timeval_of_us(timeout_us);
    struct address address = settings->address;
    const char *unknown;
    redisContext *redis;

    if (settings->host && !address_parse(slice_of(settings->address_text), true, &address, &unknown)) {
        snprintf(why, REDIS_WHY_MAX, "%s", unknown);
        return NULL;
    }
    redis = settings->sentinel.master
                ? dial_master(settings, patience, why)
                : dial_as(&address, settings->username, settings->password, patience, why);

    if (redis && select_database(redis, settings, why))
        return redis;
    if (redis)
        redisFree(redis);
    return NULL;
}
