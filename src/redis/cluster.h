/* cluster.h - Redis Cluster: which node keeps which slot, and a link to every master.
 *
 *   CLUSTER SLOTS, from any node --> map --> link of the slot's node --> answer
 *                    ^                ^            |
 *                    |                `-- MOVED ---+--> the same call to the node that was named
 *                    `--- a link is down, MOVED    `--> ASK: the same, once, behind ASKING
 *
 * A call touches keys of one slot. Redirections are followed within redis.timeout; a call for a node whose link is not
 * ready yet waits for it as long. TRYAGAIN (a call of several keys while its slot moves) is the asker's to deal with:
 * REDIS_FAILURE_MOVING. */
#ifndef WEIR_REDIS_CLUSTER_H
#define WEIR_REDIS_CLUSTER_H

#include "redis/link.h"
#include "redis/slot.h"

struct redis_cluster;

/* Starts to ask the nodes of `settings`, which outlive it as `script` does. ready() of `watch` runs whenever a link has
 * become ready, not_ready() when none is any more. */
struct redis_cluster *redis_cluster_new(struct event_base *base, const struct redis_settings *settings,
                                        struct slice script, const struct redis_link_watch *watch);

/* Some node can be asked; every slot has a node that can be. */
bool redis_cluster_is_ready(const struct redis_cluster *cluster);
bool redis_cluster_is_whole(const struct redis_cluster *cluster);

/* As redis_link_has_room and _breaker: of who has the slot; the worst of all masters. */
bool redis_cluster_has_room(const struct redis_cluster *cluster, unsigned slot);
enum redis_breaker redis_cluster_breaker(const struct redis_cluster *cluster);

/* As redis_link_call, _flush, _read and _free. */
MUST_CHECK bool redis_cluster_call(struct redis_cluster *cluster, unsigned slot, struct redis_call *call,
                                   int argc, const char **argv, const size_t *argv_sizes);
void redis_cluster_flush(struct redis_cluster *cluster);
void redis_cluster_read(struct redis_cluster *cluster);
void redis_cluster_free(struct redis_cluster *cluster);

/* The masters by number, from 0: some slot of each; false where there are no more. For what concerns all of them. */
MUST_CHECK bool redis_cluster_master(const struct redis_cluster *cluster, unsigned number, unsigned *slot);

/* What the process has seen, over all its threads. */
struct redis_cluster_report {
    unsigned masters, slots;          /* of the last map */
    unsigned long moved, asked, maps; /* redirections followed; maps read */
};
struct redis_cluster_report redis_cluster_seen(void);

/* How many masters the last map had that was read of this cluster, in any thread; sets `*node` to that one of them, from 0. For those
 * who have no map themselves. */
unsigned redis_cluster_nodes(const struct redis_settings *settings, unsigned number, struct address *node);

#endif
