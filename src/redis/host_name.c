#include "redis/host_name.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/event_timer.h"
#include "base/log.h"
#include "base/magic.h"
#include "net/resolver.h"

enum {
    NAME_MAGIC = 0x4e414d45,
    LOOK_US = 200000,      /* interval of checks for requested lookups */
    WANTED_US = 1000000,   /* minimum time between lookups, if requested */
    WORKS_US = 400000,     /* the address works if a connection was ready in this time */
    TROUBLED_US = 5000000, /* delay after a failed lookup */
};

struct redis_host_name {
    uint32_t magic;
    const struct policy *policy;
    struct resolver *resolver;
    struct dns_lookup *lookup; /* NULL: no lookup is in flight */
    struct event *timer;
    uint64_t looked_up_us, due_us;
    bool troubled; /* the failure was logged */
};

/* The current address of the name. */
static struct {
    pthread_mutex_t lock;
    char host[256];
    uint16_t port;
    struct address address;      /* length 0: not known */
    atomic_uint version, failed; /* `failed`: version of the last address that did not work */
    atomic_bool wanted;
    atomic_uint_least64_t worked_us; /* when a connection was last ready */
} now = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* --- Any thread ------------------------------------------------------------------------------- */

unsigned redis_host_name_version(void)
{
    return atomic_load_explicit(&now.version, memory_order_acquire);
}

bool redis_host_name_now(const struct redis_settings *settings, struct address *address)
{
    pthread_mutex_lock(&now.lock);
    bool known =
        now.address.length && now.port == settings->port && strcmp(now.host, settings->host) == 0;
    if (known)
        *address = now.address;
    pthread_mutex_unlock(&now.lock);
    return known;
}

void redis_host_name_want(unsigned version, bool failed)
{
    if (failed && version == redis_host_name_version())
        atomic_store_explicit(&now.failed, version, memory_order_relaxed);
    atomic_store_explicit(&now.wanted, true, memory_order_relaxed);
}

void redis_host_name_works(unsigned version)
{
    if (version == redis_host_name_version())
        atomic_store_explicit(&now.worked_us, clock_us(), memory_order_relaxed);
}

/* --- Main thread ------------------------------------------------------------------------------ */

static void report_trouble(struct redis_host_name *name, const char *why)
{
    if (!name->troubled)
        log_warn("redis %s: %s; %s", name->policy->redis.address_text, why,
                 now.address.length
                     ? "the last address stays in use; check the name and resolver.nameservers"
                     : "on_failure applies until it is resolved; check redis.address and "
                       "resolver.nameservers");
    name->troubled = true;
}

static void publish_address(struct redis_host_name *name, const struct address *address,
                            enum log_level level)
{
    char text[2][ADDRESS_TEXT_MAX];

    if (now.address.length)
        log_at(level, "redis %s: its address is now %s, was %s", name->policy->redis.address_text,
               address_format(address, text[0]), address_format(&now.address, text[1]));
    pthread_mutex_lock(&now.lock);
    now.address = *address;
    pthread_mutex_unlock(&now.lock);
    atomic_fetch_add_explicit(&now.version, 1, memory_order_release);
}

/* IPv4 first, then by value: name servers rotate the order. */
static int compare_ips(const void *a, const void *b)
{
    int families = ip_is_v4(b) - ip_is_v4(a);
    return families ? families : memcmp(a, b, sizeof(struct ip));
}

/* Returns whether the current address does not work for any connection. Clears the report. */
static bool has_failed(void)
{
    unsigned version = atomic_exchange_explicit(&now.failed, 0, memory_order_relaxed);

    return version == redis_host_name_version() &&
           clock_us() - atomic_load_explicit(&now.worked_us, memory_order_relaxed) > WORKS_US;
}

/* Keeps the current address while the reply contains it, unless it has failed. Returns whether the
 * reply contains it. */
static bool choose(const struct resolver_answer *answer, bool failed, struct address *chosen)
{
    struct ip ips[RESOLVED_MAX];
    bool listed = false;

    memcpy(ips, answer->ips, answer->count * sizeof ips[0]);
    qsort(ips, answer->count, sizeof ips[0], compare_ips);
    address_of_ip(&ips[0], now.port, chosen);
    for (unsigned i = 0; i < answer->count; i++) {
        struct address address;
        address_of_ip(&ips[i], now.port, &address);
        if (!address_same(&address, &now.address))
            continue;
        listed = true;
        address_of_ip(&ips[failed ? (i + 1) % answer->count : i], now.port, chosen);
    }
    return listed;
}

static void on_addresses(void *context, const struct resolver_answer *answer)
{
    struct redis_host_name *name = context;
    const struct resolver_settings *settings = &name->policy->resolver;
    uint64_t ttl = answer->ttl_us;
    bool failed = has_failed();
    struct address chosen;

    MAGIC_CHECK(name, NAME_MAGIC);
    name->lookup = NULL;
    if (answer->count == 0) {
        report_trouble(name, answer->why ? answer->why : "it has no address");
        name->due_us = clock_us() + TROUBLED_US;
        return;
    }
    if (name->troubled)
        log_info("redis %s: is resolved again", name->policy->redis.address_text);
    name->troubled = false;
    ttl = ttl < settings->min_ttl_us ? settings->min_ttl_us : ttl;
    name->due_us = clock_us() + (ttl > settings->max_ttl_us ? settings->max_ttl_us : ttl);
    bool rotates = choose(answer, failed, &chosen); /* maybe each second */
    if (!address_same(&chosen, &now.address))
        publish_address(name, &chosen, rotates ? LEVEL_DEBUG : LEVEL_INFO);
}

static void look_up_name(struct redis_host_name *name)
{
    name->looked_up_us = clock_us();
    atomic_store_explicit(&now.wanted, false, memory_order_relaxed);
    name->lookup = resolver_look_up(name->resolver, name->policy->redis.host, on_addresses, name);
    name->due_us = name->looked_up_us + TROUBLED_US; /* in case of no memory */
}

static void on_lookup_check(evutil_socket_t fd, short what, void *arg)
{
    struct redis_host_name *name = arg;
    uint64_t time = clock_us();
    (void)fd, (void)what;

    MAGIC_CHECK(name, NAME_MAGIC);
    if (!name->lookup &&
        (time >= name->due_us || (atomic_load_explicit(&now.wanted, memory_order_relaxed) &&
                                  time - name->looked_up_us >= WANTED_US)))
        look_up_name(name);
    event_timer_arm(name->timer, LOOK_US);
}

/* Clears the address if it belongs to another name. */
static void forget_other_name(const struct redis_settings *redis)
{
    pthread_mutex_lock(&now.lock);
    if (now.port != redis->port || strcmp(now.host, redis->host) != 0) {
        snprintf(now.host, sizeof now.host, "%s", redis->host);
        now.port = redis->port;
        now.address.length = 0;
    }
    pthread_mutex_unlock(&now.lock);
}

struct redis_host_name *redis_host_name_follow(struct event_base *base, const struct policy *policy)
{
    struct redis_host_name *name;

    if (!policy->redis.host || !(name = calloc(1, sizeof *name)))
        return NULL;
    MAGIC_SET(name, NAME_MAGIC);
    name->policy = policy;
    name->resolver = resolver_new(base, &policy->resolver);
    name->timer = evtimer_new(base, on_lookup_check, name);
    if (!name->resolver || !name->timer) {
        redis_host_name_free(name);
        return NULL;
    }
    forget_other_name(&policy->redis);
    look_up_name(name);
    event_timer_arm(name->timer, LOOK_US);
    return name;
}

void redis_host_name_free(struct redis_host_name *name)
{
    if (!name)
        return;
    if (name->lookup)
        lookup_cancel(name->lookup);
    resolver_free(name->resolver);
    event_drop(name->timer);
    MAGIC_WIPE(name);
    free(name);
}
