/* cluster_map.h - the slot map of a Redis Cluster: which master serves which slot. Read from any
 * node with CLUSTER SLOTS. */
#ifndef WEIR_REDIS_CLUSTER_MAP_H
#define WEIR_REDIS_CLUSTER_MAP_H

#include <event2/event.h>

#include "policy/policy.h"
#include "redis/redis_reply.h"
#include "redis/slot.h"

enum { REDIS_CLUSTER_MAP_NODES_MAX = 256 };

struct redis_cluster_map {
    struct address nodes[REDIS_CLUSTER_MAP_NODES_MAX]; /* masters that serve slots */
    unsigned node_count;
    /* index into nodes plus 1; 0: unassigned */
    uint16_t of_slot[REDIS_SLOTS];
    unsigned slot_count;                                  /* number of assigned slots */
    struct address replicas[REDIS_CLUSTER_MAP_NODES_MAX]; /* can be queried for the map, too */
    unsigned replica_count;
};

/* Decodes a CLUSTER SLOTS reply of the node at `answered`. Returns false on error and sets
 * `*why`, a static text or the reply's. */
MUST_CHECK bool redis_cluster_map_read(const struct redis_reply *reply,
                                       const struct address *answered,
                                       struct redis_cluster_map *map, const char **why);

/* Reads the map at the start, every 30 s, and on request. One query at a time, each to the next
 * node. */
struct redis_cluster_map_reader;

/* `read` runs from the event loop. Returns NULL if out of memory. */
struct redis_cluster_map_reader *
redis_cluster_map_reader_new(struct event_base *base, const struct redis_settings *settings,
                             void (*read)(void *context, const struct redis_cluster_map *map),
                             void *context);
/* The map is out of date: reads it again, at most once per second. */
void redis_cluster_map_reader_want(struct redis_cluster_map_reader *reader);
/* While `hurry` is set (part of the cluster is unavailable), reads the map five times per
 * second. */
void redis_cluster_map_reader_hurry(struct redis_cluster_map_reader *reader, bool hurry);
/* Returns why no node has returned the map since each was tried; REDIS_OK_ANSWER: one has, or not
 * all were tried. */
enum redis_failure redis_cluster_map_reader_cause(const struct redis_cluster_map_reader *reader);
/* NULL is allowed. Must not be called from inside read(). */
void redis_cluster_map_reader_free(struct redis_cluster_map_reader *reader);

#endif
