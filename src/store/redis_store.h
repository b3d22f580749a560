/* redis_store.h - Redis as those who ask it see it, wherever it is: one server, or the master that sentinels name.
 *
 *   redis.address     one link
 *   redis.sentinel    one link, to where the watcher of the sentinels says
 *
 * Calls, their callbacks and what is reported upward are those of redis_link.h. */
#ifndef WEIR_STORE_REDIS_STORE_H
#define WEIR_STORE_REDIS_STORE_H

#include "store/redis_link.h"

struct redis_store;

/* As redis_link_new, at the place or places that `settings` names. */
struct redis_store *redis_store_new(struct event_base *base, const struct redis_settings *settings,
                                    struct slice script, const struct redis_link_watch *watch);

bool redis_store_is_ready(const struct redis_store *store);

/* As redis_link_call, _flush, _note_timeout and _free. */
MUST_CHECK bool redis_store_call(struct redis_store *store, struct redis_call *call, int argc,
                                 const char **argv, const size_t *argv_sizes);
void redis_store_flush(struct redis_store *store);
void redis_store_note_timeout(struct redis_store *store);
void redis_store_free(struct redis_store *store);

#endif
