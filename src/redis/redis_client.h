/* redis_client.h - Redis as those who ask it see it, wherever it is.
 *
 *   redis.address     one link
 *   redis.sentinel    one link, to where the watcher of the sentinels says
 *   redis.cluster     a link to each master, and a map that says which of them has a key
 *
 * Calls, their callbacks and what is reported upward are those of link.h. */
#ifndef WEIR_REDIS_REDIS_CLIENT_H
#define WEIR_REDIS_REDIS_CLIENT_H

#include "redis/link.h"

struct redis_client;

/* As redis_link_new, at the place or places that `settings` names. */
struct redis_client *redis_client_new(struct event_base *base, const struct redis_settings *settings,
                                      struct slice script, const struct redis_link_watch *watch);

/* May be asked; of a cluster, some node. All of it can. */
bool redis_client_is_ready(const struct redis_client *store);
bool redis_client_is_whole(const struct redis_client *store);

/* As redis_link_has_room, of who has the slot; and the worst state of any part. */
bool redis_client_has_room(const struct redis_client *store, unsigned slot);
enum redis_breaker redis_client_breaker(const struct redis_client *store);
/* As redis_link_cause; of a cluster always DOWN. */
enum redis_failure redis_client_cause(const struct redis_client *store);

/* Calls of several keys must have them in one slot: always 0 but in a cluster. */
unsigned redis_client_slot(const struct redis_client *store, struct slice key);
bool redis_client_has_slots(const struct redis_client *store);

/* As redis_link_call, _flush, _read and _free. A call without keys goes to any node. */
MUST_CHECK bool redis_client_call(struct redis_client *store, struct redis_call *call, int argc,
                                  const char **argv, const size_t *argv_sizes);
void redis_client_flush(struct redis_client *store);
void redis_client_read(struct redis_client *store);
void redis_client_free(struct redis_client *store);

/* The same for a call that concerns one part of Redis by itself, such as SCAN: the `part`th master, from 0. */
MUST_CHECK bool redis_client_call_part(struct redis_client *store, unsigned part, struct redis_call *call,
                                       int argc, const char **argv, const size_t *argv_sizes);
unsigned redis_client_parts(const struct redis_client *store);

/* The deadline of a call that was accepted passed without an answer: see redis_link_note_timeout. */
void redis_client_note_timeout(struct redis_client *store, const struct redis_call *call);

#endif
