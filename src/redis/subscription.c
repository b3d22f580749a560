#include "redis/subscription.h"

#include <limits.h>
#include <stdlib.h>

#include "base/event_timer.h"
#include "base/log.h"
#include "base/magic.h"
#include "redis/cluster.h"
#include "redis/failure.h"
#include "redis/host_name.h"
#include "redis/redis_connection.h"
#include "redis/sentinel.h"

enum {
    SUBSCRIPTION_MAGIC = 0x53554253,
    ANSWER_US = 2000000, /* timeout of the subscription and of a PING */
    PING_US = 2000000,   /* idle time before a PING: silence may mean a dead connection */
    RETRY_MIN_US = 100000,
    RETRY_MAX_US = 5000000,
};

struct redis_subscription {
    uint32_t magic;
    struct event_base *base;
    const struct redis_settings *settings;
    struct address address;          /* the server; length 0: not known yet */
    struct redis_sentinel *sentinel; /* NULL: the policy contains the address */
    /* number of cluster nodes tried; every node receives all published messages */
    unsigned dialled;
    char *channel;
    void (*received)(void *context, const char *message, size_t size);
    void *context;
    struct redis_connection *connection; /* NULL: waits to reconnect */
    struct event *timer;                 /* reconnect, next PING, or timeout */
    uint64_t retry_us;
    bool confirmed, pinged;
    bool is_master; /* it was a master of the cluster at the last check */
    bool logged;    /* the missing permission to SUBSCRIBE was logged */
};

static void drop_connection(struct redis_subscription *s)
{
    s->confirmed = s->pinged = s->is_master = false;
    redis_connection_free(s->connection);
    s->connection = NULL;
}

/* Failures are logged at debug level only: the workers' links report the outage. */
static void reconnect_later(struct redis_subscription *s, const char *why)
{
    log_debug("redis %s: no subscription to %s: %s", s->settings->address_text, s->channel, why);
    drop_connection(s);
    if (s->sentinel)
        redis_sentinel_query(s->sentinel);
    event_timer_back_off(s->timer, &s->retry_us, RETRY_MAX_US);
}

/* --- Replies and messages --------------------------------------------------------------------- */

static void report_refused(struct redis_subscription *s, const char *message)
{
    if (s->logged || !redis_error_is(message, "NOPERM"))
        return;
    s->logged = true;
    log_warn("redis %s: %s; a client that another weir resets may be rejected here for one more "
             "second; allow this user to SUBSCRIBE to %s",
             s->settings->address_text, message, s->channel);
}

static void note_alive(struct redis_subscription *s)
{
    s->pinged = false;
    event_timer_arm(s->timer, PING_US);
}

static void subscribed(struct redis_subscription *s)
{
    note_alive(s);
    s->retry_us = RETRY_MIN_US;
    s->logged = false;
    s->confirmed = true;
    if (s->sentinel)
        redis_sentinel_content(s->sentinel);
    s->received(s->context, NULL, 0);
}

static void on_received(void *context, struct redis_reply *reply)
{
    struct redis_subscription *s = context;
    struct slice kind, channel, message;
    int64_t channels;

    MAGIC_CHECK(s, SUBSCRIPTION_MAGIC);
    if (s->confirmed)
        note_alive(s); /* any reply counts, even an error because the user may not PING */
    else if (reply->type == RESP_ERROR) {
        report_refused(s, reply->text.p);
        reconnect_later(s, reply->text.p);
        return;
    }
    if (redis_reply_read(reply, "ssi", &kind, &channel, &channels) &&
        slice_equal(kind, SLICE("subscribe")))
        subscribed(s);
    else if (redis_reply_read(reply, "sss", &kind, &channel, &message) &&
             slice_equal(kind, SLICE("message")))
        s->received(s->context, message.p, message.n);
}

static void on_lost(void *context, const char *why)
{
    struct redis_subscription *s = context;

    MAGIC_CHECK(s, SUBSCRIPTION_MAGIC);
    reconnect_later(s, why);
}

/* --- Connecting ------------------------------------------------------------------------------- */

/* Cycles through the nodes of the policy, then through the masters of the map that the workers
 * read. */
static void choose_node(struct redis_subscription *s)
{
    const struct redis_nodes *cluster = &s->settings->cluster;
    struct address master;
    unsigned masters = redis_cluster_nodes(s->settings, UINT_MAX, &master),
             next = s->dialled++ % (cluster->count + masters);

    if (next < cluster->count)
        s->address = cluster->node[next].address;
    else if (redis_cluster_nodes(s->settings, next - cluster->count, &master) >
             next - cluster->count)
        s->address = master;
}

static void connect_next(struct redis_subscription *s)
{
    if (s->settings->cluster.count)
        choose_node(s);
    if (s->settings->host)
        (void)redis_host_name_now(s->settings, &s->address);
    event_timer_arm(s->timer, ANSWER_US);
    s->connection = redis_connection_new(
        s->base, s->settings, &s->address, s->settings->username, s->settings->password,
        &(struct redis_connection_callbacks){on_received, on_lost, s});
    if (!s->connection ||
        !redis_connection_send(s->connection, 2, (const char *[]){"SUBSCRIBE", s->channel}, NULL))
        reconnect_later(s, "the connection failed");
}

static bool is_master_of_cluster(const struct redis_subscription *s)
{
    struct address master;

    for (unsigned i = 0; i < redis_cluster_nodes(s->settings, i, &master); i++)
        if (address_same(&master, &s->address))
            return true;
    return false;
}

static void ping(struct redis_subscription *s)
{
    bool was_master = s->is_master;
    struct address now;

    s->is_master = s->settings->cluster.count && is_master_of_cluster(s);
    if (was_master && !s->is_master) {
        reconnect_later(s, "it may have left the cluster");
        return;
    }
    if (s->settings->host && redis_host_name_now(s->settings, &now) &&
        !address_same(&now, &s->address)) {
        reconnect_later(s, "its name resolves to another address");
        return;
    }
    s->pinged = true;
    event_timer_arm(s->timer, ANSWER_US);
    if (!redis_connection_send(s->connection, 1, (const char *[]){"PING"}, NULL))
        reconnect_later(s, "no memory");
}

static void on_ping_or_retry(evutil_socket_t fd, short what, void *arg)
{
    struct redis_subscription *s = arg;
    (void)fd, (void)what;

    MAGIC_CHECK(s, SUBSCRIPTION_MAGIC);
    if (!s->connection)
        connect_next(s);
    else if (s->confirmed && !s->pinged)
        ping(s);
    else
        reconnect_later(s, redis_connection_timeout(s->connection));
}

/* If the master is unchanged, the retry timer is enough. */
static void on_found(void *context, const struct address *master)
{
    struct redis_subscription *s = context;

    MAGIC_CHECK(s, SUBSCRIPTION_MAGIC);
    if (address_same(master, &s->address))
        return;
    s->address = *master;
    s->retry_us = RETRY_MIN_US;
    drop_connection(s);
    connect_next(s);
}

/* --- Create and free -------------------------------------------------------------------------- */

struct redis_subscription *redis_subscription_new(
    struct event_base *base, const struct redis_settings *settings, const char *channel,
    void (*received)(void *context, const char *message, size_t size), void *context)
{
    struct redis_subscription *s = calloc(1, sizeof *s);

    if (!s)
        return NULL;
    MAGIC_SET(s, SUBSCRIPTION_MAGIC);
    s->base = base;
    s->settings = settings;
    s->address = settings->address;
    s->received = received;
    s->context = context;
    s->retry_us = RETRY_MIN_US;
    s->channel = strdup(channel);
    s->timer = evtimer_new(base, on_ping_or_retry, s);
    if (!s->channel || !s->timer) {
        redis_subscription_free(s);
        return NULL;
    }
    if (!settings->sentinel.master) {
        connect_next(s);
        return s;
    }
    s->sentinel = redis_sentinel_new(base, settings, on_found, s);
    if (s->sentinel)
        return s;
    redis_subscription_free(s);
    return NULL;
}

bool redis_subscription_covers(const struct redis_subscription *before,
                               const struct redis_subscription *now)
{
    return before && before->confirmed && strcmp(before->channel, now->channel) == 0 &&
           address_same(&before->address, &now->address);
}

void redis_subscription_free(struct redis_subscription *s)
{
    if (!s)
        return;
    drop_connection(s);
    redis_sentinel_free(s->sentinel);
    event_drop(s->timer);
    free(s->channel);
    MAGIC_WIPE(s);
    free(s);
}
