/* server_resets.c - subscribes to the resets and grants that any weir instance publishes in
 * Redis. */
#include <stdlib.h>

#include "admin/client_query.h"
#include "admin/grant_calls.h"
#include "admin/grant_reader.h"
#include "base/log.h"
#include "limit/denials.h"
#include "limit/grants.h"
#include "limit/resets.h"
#include "redis/host_name.h"
#include "redis/subscription.h"
#include "server_internal.h"

struct reset_subscription {
    struct weir *weir;
    struct policy *policy; /* a reference */
    struct redis_subscription *subscription;
};

static void reset_subscription_end(struct reset_subscription *resets)
{
    if (!resets)
        return;
    redis_subscription_free(resets->subscription);
    policy_drop(resets->policy);
    free(resets);
}

/* Handles a reset or a grant. A reset of any client invalidates all cached denials; each is
 * requested from Redis once more. */
static void on_message(struct weir *weir, struct slice message)
{
    const struct slice granted = SLICE(GRANT_MESSAGE);
    bool grant = slice_starts_with(message, granted);

    log_debug("%s%.*s", grant ? "" : "reset of ", (int)message.n, message.p);
    if (grant) { /* a grant invalidates denials too, but only when it has been read */
        resets_note((struct slice){message.p + granted.n, message.n - granted.n});
        grant_reader_look(weir->grants);
        return;
    }
    resets_note(message);
    denials_forget_all();
    quotas_forget(weir->quotas, message);
}

/* The subscription is established. Messages may have been missed, unless the subscription from
 * before a reload covers the gap. */
static void on_subscribed(struct reset_subscription *resets)
{
    struct weir *weir = resets->weir;
    bool covered =
        resets == weir->resets && weir->resets_before &&
        redis_subscription_covers(weir->resets_before->subscription, resets->subscription);

    if (resets == weir->resets) {
        reset_subscription_end(weir->resets_before);
        weir->resets_before = NULL;
    }
    grant_reader_look(weir->grants);
    if (covered)
        return;
    resets_note(SLICE_NONE);
    denials_forget_all();
    quotas_doubt(weir->quotas);
}

static void on_reset(void *context, const char *message, size_t size)
{
    struct reset_subscription *resets = context;

    if (message)
        on_message(resets->weir, (struct slice){message, size});
    else
        on_subscribed(resets);
}

/* Subscribes. Returns NULL if no subscription could be created. */
static struct reset_subscription *subscribe(struct weir *weir)
{
    struct reset_subscription *resets = calloc(1, sizeof *resets);
    char *channel = client_query_channel(weir->policy);

    if (!resets) {
        free(channel);
        return NULL;
    }
    resets->weir = weir;
    resets->policy = policy_hold(weir->policy);
    if (channel)
        resets->subscription =
            redis_subscription_new(weir->base, &weir->policy->redis, channel, on_reset, resets);
    free(channel);
    if (resets->subscription)
        return resets;
    reset_subscription_end(resets);
    return NULL;
}

void listen_for_resets(struct weir *weir)
{
    if (weir->resets) { /* if the newest subscription failed, keeps the one before it */
        reset_subscription_end(weir->resets_before);
        weir->resets_before = weir->resets;
    }
    redis_host_name_free(weir->redis_host_name);
    weir->redis_host_name =
        policy_needs_redis(weir->policy) ? redis_host_name_follow(weir->base, weir->policy) : NULL;
    grant_reader_free(weir->grants);
    weir->grants = NULL;
    weir->resets = NULL;
    if (policy_needs_redis(weir->policy)) {
        weir->grants = grant_reader_new(weir->base, weir->policy);
        weir->resets = subscribe(weir);
        if (!weir->grants || !weir->resets)
            log_error("out of memory: grants, or resets by other instances, apply only after the "
                      "next reload");
        return;
    }
    reset_subscription_end(weir->resets_before);
    weir->resets_before = NULL;
}

void stop_listening_for_resets(struct weir *weir)
{
    reset_subscription_end(weir->resets_before);
    reset_subscription_end(weir->resets);
    grant_reader_free(weir->grants);
    redis_host_name_free(weir->redis_host_name);
    grants_publish(NULL);
}
