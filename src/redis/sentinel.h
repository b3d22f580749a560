/* sentinel.h - asks sentinels for the master's address and subscribes to its changes.
 *
 * One connection at a time: GET-MASTER-ADDR-BY-NAME, the other sentinels, SUBSCRIBE
 * +switch-master. The next sentinel is tried if the connection is lost, a PING times out, or the
 * reported master does not work. */
#ifndef WEIR_REDIS_SENTINEL_H
#define WEIR_REDIS_SENTINEL_H

#include <event2/event.h>

#include "policy/policy.h"

struct redis_sentinel;

/* Starts to query the sentinels of `settings`, which must outlive it. `found` runs from the event
 * loop for every reply; the address may be unchanged. Returns NULL if out of memory. */
struct redis_sentinel *
redis_sentinel_new(struct event_base *base, const struct redis_settings *settings,
                   void (*found)(void *context, const struct address *master), void *context);

/* The known master does not answer or is no longer a master. Queries the sentinels in turn, five
 * per second, until redis_sentinel_content() or redis_sentinel_verified(). */
void redis_sentinel_query(struct redis_sentinel *sentinel);
/* content: the reported address works; stops the queries. verified: it is a master, too; logs a
 * change. */
void redis_sentinel_content(struct redis_sentinel *sentinel);
void redis_sentinel_verified(struct redis_sentinel *sentinel);

/* NULL is allowed. Must not be called from inside found(). */
void redis_sentinel_free(struct redis_sentinel *sentinel);

/* Parses the address in a reply or message. Only IP addresses: a host name would need a blocking
 * lookup. Returns false if it is not one. Also used by blocking.c. */
bool redis_sentinel_address(struct slice host, struct slice port, struct address *address);

/* The last verified master of the process, all threads ("" at first), and how often it has
 * changed. */
void redis_sentinel_master(char text[static ADDRESS_TEXT_MAX]);
unsigned redis_sentinel_changes(void);

#endif
