/* redis_store.h - Redis as those who ask it see it, wherever it is.
 *
 *   redis.address     one link
 *   redis.sentinel    one link, to where the watcher of the sentinels says
 *   redis.cluster     a link to each master, and a map that says which of them has a key
 *
 * Calls, their callbacks and what is reported upward are those of redis_link.h. */
#ifndef WEIR_STORE_REDIS_STORE_H
#define WEIR_STORE_REDIS_STORE_H

#include "store/redis_link.h"

struct redis_store;

/* As redis_link_new, at the place or places that `settings` names. */
struct redis_store *redis_store_new(struct event_base *base, const struct redis_settings *settings,
                                    struct slice script, const struct redis_link_watch *watch);

/* May be asked; of a cluster, some node. All of it can. */
bool redis_store_is_ready(const struct redis_store *store);
bool redis_store_is_whole(const struct redis_store *store);

/* As redis_link_has_room, of who has the slot; and the worst state of any part. */
bool redis_store_has_room(const struct redis_store *store, unsigned slot);
enum redis_breaker redis_store_breaker(const struct redis_store *store);
/* As redis_link_cause; of a cluster always DOWN. */
enum redis_failure redis_store_cause(const struct redis_store *store);

/* Calls of several keys must have them in one slot: always 0 but in a cluster. */
unsigned redis_store_slot(const struct redis_store *store, struct slice key);
bool redis_store_has_slots(const struct redis_store *store);

/* As redis_link_call, _flush, _read and _free. A call without keys goes to any node. */
MUST_CHECK bool redis_store_call(struct redis_store *store, struct redis_call *call, int argc,
                                 const char **argv, const size_t *argv_sizes);
void redis_store_flush(struct redis_store *store);
void redis_store_read(struct redis_store *store);
void redis_store_free(struct redis_store *store);

/* The same for a call that concerns one part of Redis by itself, such as SCAN: the `part`th master, from 0. */
MUST_CHECK bool redis_store_call_part(struct redis_store *store, unsigned part, struct redis_call *call,
                                      int argc, const char **argv, const size_t *argv_sizes);
unsigned redis_store_parts(const struct redis_store *store);

/* The deadline of a call that was accepted passed without an answer: see redis_link_note_timeout. */
void redis_store_note_timeout(struct redis_store *store, const struct redis_call *call);

#endif
