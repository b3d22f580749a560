/* endpoint_names.c - resolves an endpoint set's host names when their TTL expires, and rebuilds
 * the endpoints when addresses change. The last addresses stay until a lookup succeeds. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/event_timer.h"
#include "base/log.h"
#include "upstream/endpoint_set_internal.h"

enum {
    RETRY_MIN_US = 1000000, /* after a failed lookup; doubled each time */
    RETRY_MAX_US = 30 * 1000000,
    AWAIT_US = 1000000 /* a name may have no address for so long before that is a problem */
};

static void look_up(struct name *name);

const struct name *endpoint_name_of(const struct endpoint_set *endpoint_set,
                                    const struct upstream_server *server)
{
    for (unsigned i = 0; i < endpoint_set->name_count; i++)
        if (endpoint_set->names[i].server == server)
            return &endpoint_set->names[i];
    return NULL;
}

static uint64_t bounded(uint64_t value, uint64_t low, uint64_t high)
{
    return value < low ? low : value > high ? high : value;
}

/* --- logging: one line per change, not per lookup --- */

static void report_addresses(const struct name *name)
{
    char room[512];
    struct text text = text_over(room, sizeof room);

    for (unsigned i = 0; i < name->count && text.n < sizeof room - ADDRESS_TEXT_MAX; i++) {
        text_put(&text, i ? SLICE(", ") : SLICE_NONE);
        ip_format(&name->ips[i], &text);
    }
    log_info("upstream %s: %s is now %.*s", name->upstream->name, name->server->text, (int)text.n,
             room);
}

static void report_trouble(struct name *name, const char *why)
{
    if (!name->troubled)
        log_warn("upstream %s: %s: %s; %s; check the name and resolver.nameservers",
                 name->upstream->name, name->server->text, why,
                 name->count ? "its last addresses stay in use"
                             : "it receives no requests until it is resolved");
    name->troubled = true;
}

static void report_resolved(struct name *name)
{
    if (name->troubled)
        log_info("upstream %s: %s is resolved again", name->upstream->name, name->server->text);
    name->troubled = false;
}

/* --- DNS answers --- */

static int compare_ips(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct ip));
}

/* Sorts the addresses, because name servers rotate them. If only one of A and AAAA was answered,
 * the known addresses of the other family stay. */
static unsigned merge(const struct name *name, const struct resolver_answer *answer,
                      struct ip ips[static RESOLVED_MAX])
{
    unsigned count = answer->count;

    memcpy(ips, answer->ips, count * sizeof *ips);
    for (unsigned i = 0; i < name->count && count < RESOLVED_MAX; i++) {
        unsigned family = ip_is_v4(&name->ips[i]) ? FAMILY_V4 : FAMILY_V6;
        if (answer->family[family] == RESOLVED_FAILED)
            ips[count++] = name->ips[i];
    }
    qsort(ips, count, sizeof *ips, compare_ips);
    return count;
}

static void take_addresses(struct name *name, const struct resolver_answer *answer)
{
    struct ip ips[RESOLVED_MAX];
    unsigned count = merge(name, answer, ips);
    bool first = name->count == 0;

    report_resolved(name);
    if (!name->outdated && count == name->count && memcmp(ips, name->ips, count * sizeof *ips) == 0)
        return;
    name->count = count;
    memcpy(name->ips, ips, count * sizeof *ips);
    if (!first)
        report_addresses(name);
    name->outdated = !endpoint_set_rebuild(name->endpoint_set, name->upstream, NULL);
}

static void note_resolved(struct endpoint_set *endpoint_set)
{
    for (unsigned i = 0; i < endpoint_set->name_count; i++)
        if (!endpoint_set->names[i].answered)
            return;
    if (endpoint_set_is_resolved(endpoint_set))
        return;
    atomic_store_explicit(&endpoint_set->resolved, true, memory_order_release);
    if (endpoint_set->ready)
        endpoint_set->listener.changed(endpoint_set->listener.context);
}

bool endpoint_set_awaits(const struct endpoint_set *endpoint_set, unsigned upstream)
{
    bool any = false;

    for (unsigned i = 0; i < endpoint_set->name_count; i++)
        any |= !endpoint_set->names[i].answered &&
               endpoint_set->names[i].upstream == &endpoint_set->policy->upstreams[upstream];
    return any && clock_us() - endpoint_set->created_us < AWAIT_US;
}

/* A name that no longer exists keeps its addresses as well. If they are dead, connections and
 * health checks fail. */
static void name_looked_up(void *context, const struct resolver_answer *answer)
{
    struct name *name = context;
    const struct resolver_settings *settings = &name->endpoint_set->policy->resolver;

    name->lookup = NULL;
    name->answered = true;
    if (answer->count) {
        name->retry_us = RETRY_MIN_US;
        take_addresses(name, answer);
        event_timer_arm(&name->again,
                        bounded(answer->ttl_us, settings->min_ttl_us, settings->max_ttl_us));
    } else {
        report_trouble(name, answer->why ? answer->why : "it has no address");
        event_timer_arm(&name->again, bounded(name->retry_us, 0, settings->max_ttl_us));
        name->retry_us = bounded(name->retry_us * 2, 0, RETRY_MAX_US);
    }
    note_resolved(name->endpoint_set);
}

static void look_up(struct name *name)
{
    name->lookup =
        resolver_look_up(name->endpoint_set->resolver, name->server->host, name_looked_up, name);
    if (!name->lookup)
        event_timer_arm(&name->again, RETRY_MIN_US);
}

static void look_up_again(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    look_up(arg);
}

/* --- start and stop --- */

/* Copies the addresses of the same host name, in whatever upstream it is used. */
static void copy_addresses(struct name *name, const struct endpoint_set *before)
{
    for (unsigned i = 0; before && i < before->name_count; i++) {
        const struct name *old = &before->names[i];
        if (strcmp(old->server->host, name->server->host) == 0 && old->count) {
            memcpy(name->ips, old->ips, sizeof name->ips);
            name->count = old->count;
            name->answered = true;
            name->troubled = old->troubled;
        }
    }
}

static void add_name(struct endpoint_set *endpoint_set, const struct upstream *upstream,
                     const struct upstream_server *server, const struct endpoint_set *before)
{
    struct name *name = &endpoint_set->names[endpoint_set->name_count++];

    *name = (struct name){.endpoint_set = endpoint_set,
                          .upstream = upstream,
                          .server = server,
                          .retry_us = RETRY_MIN_US};
    evtimer_assign(&name->again, endpoint_set->base, look_up_again, name);
    copy_addresses(name, before);
    look_up(name);
}

bool names_begin(struct endpoint_set *endpoint_set, const struct endpoint_set *before)
{
    const struct policy *policy = endpoint_set->policy;
    unsigned count = policy_name_count(policy);

    if (count && (!(endpoint_set->names = calloc(count, sizeof *endpoint_set->names)) ||
                  !(endpoint_set->resolver = resolver_new(endpoint_set->base, &policy->resolver))))
        return false;
    for (unsigned u = 0; u < policy->upstream_count; u++)
        for (unsigned s = 0; s < policy->upstreams[u].server_count; s++)
            if (server_is_name(&policy->upstreams[u].servers[s]))
                add_name(endpoint_set, &policy->upstreams[u], &policy->upstreams[u].servers[s],
                         before);
    note_resolved(endpoint_set);
    return true;
}

void names_end(struct endpoint_set *endpoint_set)
{
    for (unsigned i = 0; i < endpoint_set->name_count; i++) {
        if (endpoint_set->names[i].lookup)
            lookup_cancel(endpoint_set->names[i].lookup);
        event_del(&endpoint_set->names[i].again);
    }
    resolver_free(endpoint_set->resolver);
    free(endpoint_set->names);
    endpoint_set->resolver = NULL;
    endpoint_set->names = NULL;
    endpoint_set->name_count = 0;
}
