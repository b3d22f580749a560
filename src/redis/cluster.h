/* cluster.h - Redis Cluster: the slot map, and one link per master.
 *
 *   CLUSTER SLOTS, from any node --> map --> link of the slot's node --> reply
 *                    ^                ^            |
 *                    |                `-- MOVED ---+--> the same call to the named node
 *                    `--- a link is down, MOVED    `--> ASK: the same, once, after ASKING
 *
 * A call uses keys of one slot. Redirections are followed within redis.timeout. A redirected
 * call waits up to the same time if the target node's link is not ready. TRYAGAIN (a call with
 * several keys while its slot migrates) is returned to the caller as REDIS_FAILURE_MOVING. */
#ifndef WEIR_REDIS_CLUSTER_H
#define WEIR_REDIS_CLUSTER_H

#include "redis/redis_link.h"
#include "redis/slot.h"

struct redis_cluster;

/* Starts to read the slot map from the nodes of `settings`. `settings` and `script` must outlive
 * the cluster. `watch->ready` runs whenever a link becomes ready, `watch->not_ready` when no
 * link is ready any more. Returns NULL if out of memory. */
struct redis_cluster *redis_cluster_new(struct event_base *base,
                                        const struct redis_settings *settings, struct slice script,
                                        const struct redis_link_watch *watch);

/* is_ready: at least one node's link is ready. is_whole: every slot has a master with a ready
 * link. */
bool redis_cluster_is_ready(const struct redis_cluster *cluster);
bool redis_cluster_is_whole(const struct redis_cluster *cluster);

/* Returns the link to the master of `slot`. NULL: no master is known. */
const struct redis_link *redis_cluster_link(const struct redis_cluster *cluster, unsigned slot);

/* Returns why no master of a slot is known. */
enum redis_failure redis_cluster_cause(const struct redis_cluster *cluster);

/* As redis_link_has_room() for the master of `slot`; as redis_link_breaker(), the worst state of
 * all masters. */
bool redis_cluster_has_room(const struct redis_cluster *cluster, unsigned slot);
enum redis_breaker redis_cluster_breaker(const struct redis_cluster *cluster);

/* As redis_link_call(), _flush(), _read() and _free(). */
MUST_CHECK bool redis_cluster_call(struct redis_cluster *cluster, unsigned slot,
                                   struct redis_call *call, int argc, const char **argv,
                                   const size_t *argv_sizes);
void redis_cluster_flush(struct redis_cluster *cluster);
void redis_cluster_read(struct redis_cluster *cluster);
void redis_cluster_free(struct redis_cluster *cluster);

/* Sets `*slot` to some slot of master `number` (from 0) of those with slots. Returns false if there
 * is no such master. For commands that must run on every master. */
MUST_CHECK bool redis_cluster_master(const struct redis_cluster *cluster, unsigned number,
                                     unsigned *slot);

/* Counters of the whole process (all threads). */
struct redis_cluster_report {
    unsigned masters, slots;          /* from the last map read */
    unsigned long moved, asked, maps; /* MOVED and ASK redirections followed; maps read */
};
struct redis_cluster_report redis_cluster_seen(void);

/* For cluster.c: a redirection was followed, or a thread has read the map. Logs each change of the
 * masters once, whichever thread reads it first. */
void redis_cluster_report_redirect(bool asking);
struct redis_cluster_map;
void redis_cluster_report_map(const struct redis_settings *settings,
                              const struct redis_cluster_map *map);

/* Returns the number of masters in the last map that any thread read for this cluster. Sets
 * `*node` to master `number` (from 0), if it exists. For callers without a map of their own. */
unsigned redis_cluster_nodes(const struct redis_settings *settings, unsigned number,
                             struct address *node);

#endif
