/* redis_host_name.h - where a name in redis.address is now. One thread looks it up, for all that connect.
 *
 *   main thread   redis_host_name_follow() --resolver--> the address, a version
 *   any thread    redis_host_name_version(), redis_host_name_now(); redis_host_name_want() when a connection fails */
#ifndef WEIR_REDIS_HOST_NAME_H
#define WEIR_REDIS_HOST_NAME_H

#include <event2/event.h>

#include "policy/policy.h"

struct redis_host_name;

/* Looks the name up now, when its time to live is over, and when it is wanted. `policy` outlives it. NULL: redis.address is no name, or no
 * memory. One at a time. */
struct redis_host_name *redis_host_name_follow(struct event_base *base, const struct policy *policy);
/* The event loop has to turn once more before it is freed. NULL is allowed. */
void redis_host_name_free(struct redis_host_name *name);

/* Grows with every change of the address. */
unsigned redis_host_name_version(void);
/* False: it is not known yet. */
bool redis_host_name_now(const struct redis_settings *settings, struct address *address);
/* Nothing good is where the name was said to be: it is looked up again, at most once a second. `unreachable`: where it has several
 * addresses, the next one. */
void redis_host_name_want(bool unreachable);

#endif
