/* sentinel.h - asks sentinels where the master is, and hears from one of them when that changes.
 *
 * One connection at a time: GET-MASTER-ADDR-BY-NAME, the other sentinels, SUBSCRIBE +switch-master. When it is lost,
 * answers no PING, or the master that it told of is of no use, the next sentinel is asked. */
#ifndef WEIR_REDIS_SENTINEL_H
#define WEIR_REDIS_SENTINEL_H

#include <event2/event.h>

#include "policy/policy.h"

struct redis_sentinel;

struct redis_sentinel_callbacks {
    /* From the event loop, with every answer: perhaps the same as before. */
    void (*found)(void *context, const struct address *master);
    void *context;
};

/* Starts to ask the sentinels of `settings`, which outlive it. */
struct redis_sentinel *redis_sentinel_new(struct event_base *base, const struct redis_settings *settings,
                                          const struct redis_sentinel_callbacks *callbacks);

/* The master known so far does not answer, or is none any more: asks one sentinel after the other, five a second,
 * until redis_sentinel_content. */
void redis_sentinel_ask(struct redis_sentinel *sentinel);
/* What was found will do; it was found to be a master. */
void redis_sentinel_content(struct redis_sentinel *sentinel);
void redis_sentinel_verified(struct redis_sentinel *sentinel);

/* NULL is allowed. Not from inside found(). */
void redis_sentinel_free(struct redis_sentinel *sentinel);

/* Reads the address in an answer or message: numbers alone, since nothing here may wait for a name server. False: none.
 * For the blocking side as well. */
bool redis_sentinel_address(struct slice host, struct slice port, struct address *address);

/* What the process has verified last, over all its threads: where the master is ("" at first), and how often that has
 * changed. */
void redis_sentinel_master(char text[static ADDRESS_TEXT_MAX]);
unsigned redis_sentinel_changes(void);

#endif
