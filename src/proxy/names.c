/* names.c - the names among a roster's servers: looked up when their time to live is over, told to the roster when
 * their addresses have changed. What a name had last stays until there is a better answer. */
#include <stdlib.h>

#include "base/log.h"
#include "base/timer.h"
#include "proxy/roster_internal.h"

enum {
    RETRY_MIN_US = 1000000, /* after a lookup that brought nothing; doubled each time */
    RETRY_MAX_US = 30 * 1000000
};

static void look_up(struct name *name);

const struct name *name_of(const struct roster *roster, const struct upstream_server *server)
{
    for (unsigned i = 0; i < roster->name_count; i++)
        if (roster->names[i].server == server)
            return &roster->names[i];
    return NULL;
}

static uint64_t bounded(uint64_t value, uint64_t low, uint64_t high)
{
    return value < low ? low : value > high ? high : value;
}

/* --- saying what has changed: one line a change, not a lookup --- */

static void say_addresses(const struct name *name)
{
    char room[512];
    struct text text = text_over(room, sizeof room);

    for (unsigned i = 0; i < name->count && text.n < sizeof room - ADDRESS_TEXT_MAX; i++) {
        text_put(&text, i ? SLICE(", ") : SLICE_NONE);
        ip_format(&name->ips[i], &text);
    }
    log_info("upstream %s: %s is now %.*s", name->upstream->name, name->server->text, (int)text.n, room);
}

static void say_trouble(struct name *name, const char *why)
{
    if (!name->troubled)
        log_warn("upstream %s: %s: %s; %s", name->upstream->name, name->server->text, why,
                 name->count ? "its last addresses stay" : "no requests go there until it is resolved");
    name->troubled = true;
}

static void say_resolved(struct name *name)
{
    if (name->troubled)
        log_info("upstream %s: %s is resolved again", name->upstream->name, name->server->text);
    name->troubled = false;
}

/* --- answers --- */

static int compare_ips(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct ip));
}

/* In order, since name servers answer in another one each time. Where A was answered and AAAA was not, or the reverse, what was known of the other stays. */
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

    say_resolved(name);
    if (count == name->count && memcmp(ips, name->ips, count * sizeof *ips) == 0)
        return;
    name->count = count;
    memcpy(name->ips, ips, count * sizeof *ips);
    if (!first)
        say_addresses(name);
    roster_rebuild(name->roster, name->upstream, NULL);
}

static void settle(struct roster *roster)
{
    for (unsigned i = 0; i < roster->name_count; i++)
        if (!roster->names[i].answered)
            return;
    if (roster_is_settled(roster))
        return;
    atomic_store_explicit(&roster->settled, true, memory_order_release);
    if (roster->ready)
        roster->listener.changed(roster->listener.context);
}

/* A name that is not there any more keeps its addresses as well: if they are dead, they are found to be. */
static void answered(void *context, const struct resolver_answer *answer)
{
    struct name *name = context;
    const struct resolver_settings *settings = &name->roster->policy->resolver;

    name->lookup = NULL;
    name->answered = true;
    if (answer->count) {
        name->retry_us = RETRY_MIN_US;
        take_addresses(name, answer);
        timer_arm(&name->again, bounded(answer->ttl_us, settings->min_ttl_us, settings->max_ttl_us));
    } else {
        say_trouble(name, answer->why ? answer->why : "it has no address");
        timer_arm(&name->again, bounded(name->retry_us, 0, settings->max_ttl_us));
        name->retry_us = bounded(name->retry_us * 2, 0, RETRY_MAX_US);
    }
    settle(name->roster);
}

static void look_up(struct name *name)
{
    name->lookup = resolver_ask(name->roster->resolver, name->server->host, answered, name);
    if (!name->lookup)
        timer_arm(&name->again, RETRY_MIN_US);
}

static void on_again(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    look_up(arg);
}

/* --- all of them --- */

/* The same name, whatever upstream it stands in. */
static void take_over(struct name *name, const struct roster *before)
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

static void add_name(struct roster *roster, const struct upstream *upstream,
                     const struct upstream_server *server, const struct roster *before)
{
    struct name *name = &roster->names[roster->name_count++];

    *name = (struct name){.roster = roster, .upstream = upstream, .server = server, .retry_us = RETRY_MIN_US};
    evtimer_assign(&name->again, roster->base, on_again, name);
    take_over(name, before);
    look_up(name);
}

bool names_begin(struct roster *roster, const struct roster *before)
{
    const struct policy *policy = roster->policy;
    unsigned count = policy_name_count(policy);

    if (count && (!(roster->names = calloc(count, sizeof *roster->names)) ||
                  !(roster->resolver = resolver_new(roster->base, &policy->resolver))))
        return false;
    for (unsigned u = 0; u < policy->upstream_count; u++)
        for (unsigned s = 0; s < policy->upstreams[u].server_count; s++)
            if (server_is_name(&policy->upstreams[u].servers[s]))
                add_name(roster, &policy->upstreams[u], &policy->upstreams[u].servers[s], before);
    settle(roster);
    return true;
}

void names_end(struct roster *roster)
{
    for (unsigned i = 0; i < roster->name_count; i++) {
        if (roster->names[i].lookup)
            lookup_cancel(roster->names[i].lookup);
        event_del(&roster->names[i].again);
    }
    resolver_free(roster->resolver);
    free(roster->names);
    roster->resolver = NULL;
    roster->names = NULL;
    roster->name_count = 0;
}
