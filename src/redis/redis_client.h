/* redis_client.h - one interface to Redis for all topologies:
 *
 *   redis.address     one link
 *   redis.sentinel    one link, to the master that the sentinels report
 *   redis.cluster     one link per master, and a slot map
 *
 * Calls and callbacks are those of redis_link.h.
 *
 * This directory owns all connections to Redis: login, pipelining, deadlines, failures. It contains
 * nothing of HTTP or limits, and only its files include hiredis. In reading order:
 *
 *   redis_client.h                the interface for the event loop; blocking.h, for the command line
 *   redis_link.h                  one connection: redis_link_setup.c, calls.c, redis_link_io.c,
 *                                 redis_link_outage.c
 *   redis_reply.h                 decoded replies; redis_reply_reader.c builds them
 *   failure.h, outage.h           why a call failed; when an outage begins and ends
 *   cluster.h, sentinel.h         which server has a key, which one is the master
 *   subscription.h, embedded.h    messages; the Redis that weir starts itself */
#ifndef WEIR_REDIS_REDIS_CLIENT_H
#define WEIR_REDIS_REDIS_CLIENT_H

#include "redis/redis_link.h"

struct redis_client;

/* As redis_link_new(); `settings` names the server or servers. Returns NULL if
 * out of memory. */
struct redis_client *redis_client_new(struct event_base *base,
                                      const struct redis_settings *settings, struct slice script,
                                      const struct redis_link_watch *watch);

/* Creates a client that never connects, so it is never ready: for dry runs. NULL: no memory. */
struct redis_client *redis_client_new_idle(void);

/* is_ready: calls are accepted (cluster: by at least one node). takes: by the node that serves the
 * key. is_whole: by all nodes. */
bool redis_client_is_ready(const struct redis_client *store);
bool redis_client_takes(const struct redis_client *store, struct slice key);
bool redis_client_is_whole(const struct redis_client *store);

/* As redis_link_has_room() for the node that serves `slot`; the worst breaker state of all
 * nodes. */
bool redis_client_has_room(const struct redis_client *store, unsigned slot);
enum redis_breaker redis_client_breaker(const struct redis_client *store);
/* Returns why the node that serves `slot` takes no call. BUSY: it is ready, but too many wait.
 * CLUSTER: no node is known for the slot. Else as redis_link_cause(). */
enum redis_failure redis_client_cause(const struct redis_client *store, unsigned slot);

/* Returns the key's slot; 0 if Redis is not a cluster. All keys of a call must be in one slot. */
unsigned redis_client_slot(const struct redis_client *store, struct slice key);
bool redis_client_has_slots(const struct redis_client *store);

/* As redis_link_call(), _flush(), _read() and _free(). A call without keys goes to any node. */
MUST_CHECK bool redis_client_call(struct redis_client *store, struct redis_call *call, int argc,
                                  const char **argv, const size_t *argv_sizes);
void redis_client_flush(struct redis_client *store);
void redis_client_read(struct redis_client *store);
void redis_client_free(struct redis_client *store);

/* Calls one node, for commands such as SCAN that concern a single node: master number `part`,
 * from 0. */
MUST_CHECK bool redis_client_call_part(struct redis_client *store, unsigned part,
                                       struct redis_call *call, int argc, const char **argv,
                                       const size_t *argv_sizes);
unsigned redis_client_parts(const struct redis_client *store);

/* Reports the timeout of an accepted call, see redis_link_note_timeout(). */
void redis_client_note_timeout(const struct redis_call *call);

#endif
