/* subscription.h - subscribes to one channel on its own connection, and reconnects if it is
 * lost.
 *
 * For messages that may be late or lost. It uses hiredis' reader instead of its asynchronous
 * context, whose subscription code contains assertions that a server's reply can trip. */
#ifndef WEIR_REDIS_SUBSCRIPTION_H
#define WEIR_REDIS_SUBSCRIPTION_H

#include <event2/event.h>

#include "policy/policy.h"

struct redis_subscription;

/* Starts to connect; `settings` must outlive it. `received` runs from the event loop; `message` is
 * NULL whenever the subscription is (re)established: messages may have been missed. Returns NULL if
 * out of memory. */
struct redis_subscription *redis_subscription_new(
    struct event_base *base, const struct redis_settings *settings, const char *channel,
    void (*received)(void *context, const char *message, size_t size), void *context);
/* Returns true if `before` is subscribed to the same channel of the same server without a gap.
 * For replacing a subscription on reload. */
bool redis_subscription_covers(const struct redis_subscription *before,
                               const struct redis_subscription *now);
/* Must not be called from inside its own received(). */
void redis_subscription_free(struct redis_subscription *subscription);

#endif
