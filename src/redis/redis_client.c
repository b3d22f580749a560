#include "redis/redis_client.h"

#include <stdlib.h>

#include "base/event_timer.h"
#include "redis/cluster.h"
#include "redis/host_name.h"
#include "redis/sentinel.h"

enum { LOOK_US = 200000 };

struct redis_client {
    struct redis_link *link; /* NULL: a cluster */
    struct redis_cluster *cluster;
    struct redis_sentinel *sentinel; /* NULL: the policy contains the address */
    struct redis_link_watch watch;   /* the caller's callbacks */
    const struct redis_settings *settings;
    struct event *look;    /* checks the host name's address; NULL: not a host name */
    unsigned name_version; /* version of the link's address */
};

/* --- Host name -------------------------------------------------------------------------------- */

static void take_address(struct redis_client *store)
{
    unsigned version = redis_host_name_version();
    struct address address;

    if (version == store->name_version || !redis_host_name_now(store->settings, &address))
        return;
    store->name_version = version;
    (void)redis_link_set_address(store->link, &address);
}

/* After a lost connection or timeouts, the next attempt to connect shows whether the address
 * works. */
static bool is_attempt(enum redis_failure cause)
{
    return cause != REDIS_FAILURE_DOWN && cause != REDIS_FAILURE_CLOSED &&
           cause != REDIS_FAILURE_TIMEOUT;
}

static void on_address_check(evutil_socket_t fd, short what, void *arg)
{
    struct redis_client *store = arg;
    (void)fd, (void)what;

    take_address(store);
    if (redis_link_is_ready(store->link))
        redis_host_name_works(store->name_version);
    else
        redis_host_name_want(store->name_version, is_attempt(redis_link_cause(store->link)));
    event_timer_arm(store->look, LOOK_US);
}

/* --- Sentinels: queried when the link is down; the link connects to the reported master ------- */

static void on_link_ready(void *context)
{
    struct redis_client *store = context;

    if (store->sentinel)
        redis_sentinel_verified(store->sentinel);
    if (store->watch.ready)
        store->watch.ready(store->watch.context);
}

static void on_not_ready(void *context, enum redis_failure cause)
{
    struct redis_client *store = context;

    if (store->sentinel)
        redis_sentinel_query(store->sentinel);
    if (store->watch.not_ready)
        store->watch.not_ready(store->watch.context, cause);
}

static void on_found(void *context, const struct address *master)
{
    struct redis_client *store = context;
    (void)redis_link_set_address(store->link, master);
}

/* --- Create and free -------------------------------------------------------------------------- */

/* What follows the master: the timer for a host name, the sentinels. False: out of memory. */
static bool make_followers(struct redis_client *store, struct event_base *base)
{
    const struct redis_settings *settings = store->settings;

    if (settings->host) {
        if (!(store->look = evtimer_new(base, on_address_check, store)))
            return false;
        event_timer_arm(store->look, 0);
    }
    if (settings->sentinel.master)
        store->sentinel = redis_sentinel_new(base, settings, on_found, store);
    return store->sentinel || !settings->sentinel.master;
}

struct redis_client *redis_client_new(struct event_base *base,
                                      const struct redis_settings *settings, struct slice script,
                                      const struct redis_link_watch *watch)
{
    struct redis_client *store = calloc(1, sizeof *store);
    const struct redis_link_watch own = {.ready = on_link_ready,
                                         .not_ready = on_not_ready,
                                         .context = store,
                                         .quiet = watch && watch->quiet};

    if (!store)
        return NULL;
    if (watch)
        store->watch = *watch;
    store->settings = settings;
    if (settings->cluster.count)
        store->cluster = redis_cluster_new(base, settings, script, watch);
    else if (make_followers(store, base))
        store->link = redis_link_new(base, settings, &settings->address, script, &own);
    if (store->cluster || store->link)
        return store;
    redis_client_free(store);
    return NULL;
}

struct redis_client *redis_client_new_idle(void)
{
    return calloc(1, sizeof(struct redis_client));
}

void redis_client_free(struct redis_client *store)
{
    if (!store)
        return;
    redis_cluster_free(store->cluster);
    redis_link_free(store->link); /* runs no watch callback */
    redis_sentinel_free(store->sentinel);
    event_drop(store->look);
    free(store);
}

/* --- Calls ------------------------------------------------------------------------------------ */

bool redis_client_is_ready(const struct redis_client *store)
{
    if (store->link)
        return redis_link_is_ready(store->link);
    return store->cluster && redis_cluster_is_ready(store->cluster);
}

/* The link to the node that serves `slot`, or NULL. */
static const struct redis_link *link_of_slot(const struct redis_client *store, unsigned slot)
{
    return store->cluster ? redis_cluster_link(store->cluster, slot) : store->link;
}

bool redis_client_takes(const struct redis_client *store, struct slice key)
{
    const struct redis_link *link = link_of_slot(store, redis_client_slot(store, key));

    return link && redis_link_is_ready(link);
}

bool redis_client_is_whole(const struct redis_client *store)
{
    return store->link ? redis_link_is_ready(store->link) : redis_cluster_is_whole(store->cluster);
}

bool redis_client_has_room(const struct redis_client *store, unsigned slot)
{
    return store->link ? redis_link_has_room(store->link)
                       : redis_cluster_has_room(store->cluster, slot);
}

enum redis_breaker redis_client_breaker(const struct redis_client *store)
{
    return store->link ? redis_link_breaker(store->link) : redis_cluster_breaker(store->cluster);
}

enum redis_failure redis_client_cause(const struct redis_client *store, unsigned slot)
{
    const struct redis_link *link = link_of_slot(store, slot);

    if (!link)
        return store->cluster ? redis_cluster_cause(store->cluster) : REDIS_FAILURE_DOWN;
    return redis_link_is_ready(link) ? REDIS_FAILURE_BUSY : redis_link_cause(link);
}

bool redis_client_has_slots(const struct redis_client *store)
{
    return !store->link;
}

unsigned redis_client_slot(const struct redis_client *store, struct slice key)
{
    return store->link ? 0 : redis_slot_of(key);
}

unsigned redis_client_parts(const struct redis_client *store)
{
    unsigned parts = 0, slot;

    if (store->link)
        return 1;
    while (redis_cluster_master(store->cluster, parts, &slot))
        parts++;
    return parts;
}

bool redis_client_call(struct redis_client *store, struct redis_call *call, int argc,
                       const char **argv, const size_t *argv_sizes)
{
    if (store->link)
        return redis_link_call(store->link, call, argc, argv, argv_sizes);
    if (argv_sizes[0] == 1 && argv[0][0] == '0') /* no key: any node */
        return redis_client_call_part(store, 0, call, argc, argv, argv_sizes);
    return redis_cluster_call(store->cluster, redis_slot_of((struct slice){argv[1], argv_sizes[1]}),
                              call, argc, argv, argv_sizes);
}

bool redis_client_call_part(struct redis_client *store, unsigned part, struct redis_call *call,
                            int argc, const char **argv, const size_t *argv_sizes)
{
    unsigned slot;

    if (store->link)
        return redis_link_call(store->link, call, argc, argv, argv_sizes);
    return redis_cluster_master(store->cluster, part, &slot) &&
           redis_cluster_call(store->cluster, slot, call, argc, argv, argv_sizes);
}

void redis_client_flush(struct redis_client *store)
{
    if (!store->link) {
        redis_cluster_flush(store->cluster);
        return;
    }
    if (store->look && !redis_link_is_ready(store->link)) /* no call is lost */
        take_address(store);
    redis_link_flush(store->link);
}

void redis_client_read(struct redis_client *store)
{
    if (store->link)
        redis_link_read(store->link);
    else
        redis_cluster_read(store->cluster);
}

void redis_client_note_timeout(const struct redis_call *call)
{
    if (call->link)
        redis_link_note_timeout(call->link);
}
