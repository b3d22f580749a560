/* redis_cluster_map.h - which master keeps which slot, read from any node by CLUSTER SLOTS. */
#ifndef WEIR_REDIS_CLUSTER_MAP_H
#define WEIR_REDIS_CLUSTER_MAP_H

#include <event2/event.h>
#include <hiredis/hiredis.h>

#include "policy/policy.h"
#include "redis/slot.h"

enum { REDIS_CLUSTER_MAP_NODES_MAX = 256 };

struct redis_cluster_map {
    struct address nodes[REDIS_CLUSTER_MAP_NODES_MAX]; /* masters that have slots */
    unsigned node_count;
    uint16_t of_slot[REDIS_SLOTS];                        /* a node's index and 1; 0: nobody has it */
    unsigned slot_count;                                  /* that somebody has */
    struct address replicas[REDIS_CLUSTER_MAP_NODES_MAX]; /* they can tell the map as well */
    unsigned replica_count;
};

/* From the answer of the node at `answered`. False: `*why` (static text). */
MUST_CHECK bool redis_cluster_map_read(const redisReply *reply, const struct address *answered,
                                       struct redis_cluster_map *map, const char **why);

/* Reads the map at the start, every half a minute, and when it is told to. One reading at a time, each from the next node. */
struct redis_cluster_map_reader;

struct redis_cluster_map_callbacks {
    void (*read)(void *context, const struct redis_cluster_map *map); /* from the event loop */
    void *context;
};

struct redis_cluster_map_reader *redis_cluster_map_reader_new(struct event_base *base,
                                                              const struct redis_settings *settings,
                                                              const struct redis_cluster_map_callbacks *user);
/* It is out of date: reads it once more, at most once a second. */
void redis_cluster_map_reader_want(struct redis_cluster_map_reader *reader);
/* While `hurry`, something of the cluster is away: reads it five times a second. */
void redis_cluster_map_reader_hurry(struct redis_cluster_map_reader *reader, bool hurry);
/* NULL is allowed. Not from inside read(). */
void redis_cluster_map_reader_free(struct redis_cluster_map_reader *reader);

#endif
