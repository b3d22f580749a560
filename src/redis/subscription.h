/* subscription.h - hears what is published on one channel, on a connection of its own that is made anew
 * whenever it is lost.
 *
 * For messages that may be late or lost: nothing waits for them. It reads with hiredis' reader and not with its
 * asynchronous context, whose handling of subscriptions asserts what a server says. */
#ifndef WEIR_REDIS_SUBSCRIPTION_H
#define WEIR_REDIS_SUBSCRIPTION_H

#include <event2/event.h>

#include "policy/policy.h"

struct redis_subscription;

struct redis_subscription_callbacks {
    /* From the event loop. `message` is NULL when the channel is heard from now on, at first or again:
     * messages may have been missed. */
    void (*received)(void *context, const char *message, size_t size);
    void *context;
};

/* Starts to connect; `settings` outlives it. NULL: no memory. */
struct redis_subscription *redis_subscription_new(struct event_base *base,
                                                  const struct redis_settings *settings, const char *channel,
                                                  const struct redis_subscription_callbacks *listener);
/* Has `before`, until now and without a gap, heard all that `now` hears? For one that takes its place. */
bool redis_subscription_covers(const struct redis_subscription *before, const struct redis_subscription *now);
/* Not from inside its own received(). */
void redis_subscription_free(struct redis_subscription *subscription);

#endif
