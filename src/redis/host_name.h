/* host_name.h - resolves the host name in redis.address. One thread resolves it for all
 * connections.
 *
 *   main thread   redis_host_name_follow() --resolver--> the address, a version
 *   any thread    redis_host_name_version(), redis_host_name_now();
 *                 redis_host_name_want() if a connection fails, redis_host_name_works() */
#ifndef WEIR_REDIS_HOST_NAME_H
#define WEIR_REDIS_HOST_NAME_H

#include <event2/event.h>

#include "policy/policy.h"

struct redis_host_name;

/* Resolves the name now, when its TTL expires, and on redis_host_name_want(). `policy` must
 * outlive it. Returns NULL if redis.address has no host name, or if out of memory. Only one may
 * exist at a time. */
struct redis_host_name *redis_host_name_follow(struct event_base *base,
                                               const struct policy *policy);
/* The event loop must run one more iteration before its base is freed. NULL is allowed. */
void redis_host_name_free(struct redis_host_name *name);

/* Incremented with every change of the address. */
unsigned redis_host_name_version(void);
/* Sets `*address` to the current address. Returns false if it is not known yet. */
bool redis_host_name_now(const struct redis_settings *settings, struct address *address);
/* Requests a new lookup, at most once per second. `failed`: the address of `version` does not work.
 * If it is still the current one and works for no other connection, the name's next address is
 * chosen. */
void redis_host_name_want(unsigned version, bool failed);
/* A connection to the address of `version` is ready. */
void redis_host_name_works(unsigned version);

#endif
