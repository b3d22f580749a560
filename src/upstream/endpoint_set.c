#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "upstream/endpoint_set_internal.h"

/* ---- endpoints ------------------------------------------------------------------------------- */

static struct endpoint *endpoint_hold(struct endpoint *endpoint)
{
    atomic_fetch_add_explicit(&endpoint->references, 1, memory_order_relaxed);
    return endpoint;
}

void endpoint_drop(struct endpoint *endpoint)
{
    if (!endpoint || atomic_fetch_sub_explicit(&endpoint->references, 1, memory_order_acq_rel) > 1)
        return;
    free(endpoint->text);
    free(endpoint);
}

bool endpoint_is_reachable(const struct endpoint *endpoint)
{
    return endpoint_is_healthy(endpoint) &&
           (atomic_load_explicit(&endpoint->down, memory_order_acquire) == 0 ||
            atomic_load_explicit(&endpoint->answered_us, memory_order_relaxed) >
                atomic_load_explicit(&endpoint->down_us, memory_order_relaxed));
}

/* Returns a log text owned by the caller: "api.internal:80 (10.0.0.7:80)" for a host name. */
static char *text_for(const struct upstream_server *server, const struct address *address)
{
    char at[ADDRESS_TEXT_MAX], room[HOST_NAME_BYTES_MAX + ADDRESS_TEXT_MAX + 16];
    struct text text = text_over(room, sizeof room - 1);

    if (server->address.length)
        return strdup(server->text);
    text_printf(&text, "%s (%s)", server->text, address_format(address, at));
    room[text.n] = 0;
    return strdup(room);
}

static struct endpoint *endpoint_new(const struct upstream_server *server,
                                     const struct address *address)
{
    struct endpoint *endpoint = calloc(1, sizeof *endpoint);

    if (!endpoint || !(endpoint->text = text_for(server, address))) {
        free(endpoint);
        return NULL;
    }
    atomic_init(&endpoint->references, 1);
    endpoint->settings = server;
    endpoint->address = *address;
    return endpoint;
}

static bool same_address(const struct address *a, const struct address *b)
{
    return a->length == b->length && memcmp(&a->any, &b->any, a->length) == 0;
}

/* ---- the table ------------------------------------------------------------------------------- */

/* The current addresses of an upstream's servers, up to ENDPOINTS_MAX. */
struct wanted {
    struct {
        const struct upstream_server *server;
        struct address address;
    } at[ENDPOINTS_MAX];
    unsigned count, left_out;
};

/* Adds an address. Duplicates are dropped, except under a different host name. */
static void want(struct wanted *wanted, const struct upstream_server *server,
                 const struct address *address)
{
    for (unsigned i = 0; i < wanted->count; i++)
        if (same_address(&wanted->at[i].address, address) &&
            slice_equal(slice_of(wanted->at[i].server->host), slice_of(server->host)))
            return;
    if (wanted->count == ENDPOINTS_MAX) {
        wanted->left_out++;
        return;
    }
    wanted->at[wanted->count].server = server;
    wanted->at[wanted->count++].address = *address;
}

static void want_all(const struct endpoint_set *endpoint_set, const struct upstream *upstream,
                     struct wanted *wanted)
{
    for (unsigned s = 0; s < upstream->server_count; s++) {
        const struct upstream_server *server = &upstream->servers[s];
        const struct name *name =
            server->address.length ? NULL : endpoint_name_of(endpoint_set, server);
        if (server->address.length)
            want(wanted, server, &server->address);
        for (unsigned i = 0; name && i < name->count; i++) {
            struct address address = {.length = 0};
            address_of_ip(&name->ips[i], server->port, &address);
            want(wanted, server, &address);
        }
    }
}

static struct endpoint *find_endpoint(const struct upstream_endpoints *row,
                                      const struct upstream_server *server,
                                      const struct address *address)
{
    for (unsigned i = 0; i < row->count; i++)
        if (row->endpoints[i]->settings == server &&
            same_address(&row->endpoints[i]->address, address))
            return row->endpoints[i];
    return NULL;
}

/* Copies the health of the same endpoint from `before`: a reload does not reset it. */
static void copy_health(struct endpoint *endpoint, const struct upstream *upstream,
                        const struct endpoint_set *before)
{
    const struct policy *policy = before ? before->policy : NULL;

    if (!health_is_on(&upstream->health))
        return;
    for (unsigned u = 0; policy && u < policy->upstream_count; u++) {
        const struct upstream_endpoints *row = &before->table[u];
        if (strcmp(policy->upstreams[u].name, upstream->name) != 0 ||
            !health_is_on(&policy->upstreams[u].health))
            continue;
        for (unsigned i = 0; i < row->count; i++)
            if (strcmp(row->endpoints[i]->settings->text, endpoint->settings->text) == 0 &&
                same_address(&row->endpoints[i]->address, &endpoint->address))
                atomic_init(&endpoint->failing, !endpoint_is_healthy(row->endpoints[i]));
    }
}

/* Builds the wanted row from existing and new endpoints. True: it differs from `row`. It has fewer
 * endpoints than wanted if memory runs out. */
static bool make_row(struct upstream_endpoints *next, const struct upstream_endpoints *row,
                     const struct wanted *wanted, const struct upstream *upstream,
                     const struct endpoint_set *before)
{
    bool changed = wanted->count != row->count;

    next->count = 0;
    for (unsigned i = 0; i < wanted->count; i++) {
        struct endpoint *endpoint =
            find_endpoint(row, wanted->at[i].server, &wanted->at[i].address);
        changed |= !endpoint;
        if (endpoint)
            (void)endpoint_hold(endpoint);
        else if ((endpoint = endpoint_new(wanted->at[i].server, &wanted->at[i].address)))
            copy_health(endpoint, upstream, before);
        if (endpoint)
            next->endpoints[next->count++] = endpoint;
    }
    return changed;
}

static void row_clear(struct upstream_endpoints *row)
{
    for (unsigned i = 0; i < row->count; i++)
        endpoint_drop(row->endpoints[i]);
    row->count = 0;
}

bool endpoint_set_rebuild(struct endpoint_set *endpoint_set, const struct upstream *upstream,
                          const struct endpoint_set *before)
{
    struct upstream_endpoints *row = &endpoint_set->table[upstream->index], next, last = *row;
    struct wanted wanted = {.count = 0};

    want_all(endpoint_set, upstream, &wanted);
    bool changed = make_row(&next, row, &wanted, upstream, before),
         complete = next.count == wanted.count;
    if (!changed || !complete) {
        row_clear(&next);
        return complete;
    }
    if (wanted.left_out)
        log_warn(
            "upstream %s: %u of its %u addresses are not used; list fewer servers, or split the "
            "upstream",
            upstream->name, wanted.left_out, wanted.left_out + ENDPOINTS_MAX);
    pthread_mutex_lock(&endpoint_set->lock);
    *row = next;
    pthread_mutex_unlock(&endpoint_set->lock);
    row_clear(&last);
    atomic_fetch_add_explicit(&endpoint_set->version, 1, memory_order_release);
    bool good = health_follow(endpoint_set, upstream);
    if (endpoint_set->ready)
        endpoint_set->listener.changed(endpoint_set->listener.context);
    return good;
}

/* ---- creation and destruction ---------------------------------------------------------------- */

struct endpoint_set *endpoint_set_hold(struct endpoint_set *endpoint_set)
{
    atomic_fetch_add_explicit(&endpoint_set->references, 1, memory_order_relaxed);
    return endpoint_set;
}

void endpoint_set_drop(struct endpoint_set *endpoint_set)
{
    if (!endpoint_set ||
        atomic_fetch_sub_explicit(&endpoint_set->references, 1, memory_order_acq_rel) > 1)
        return;
    for (unsigned u = 0; endpoint_set->table && u < endpoint_set->policy->upstream_count; u++)
        row_clear(&endpoint_set->table[u]);
    pthread_mutex_destroy(&endpoint_set->lock);
    policy_drop(endpoint_set->policy);
    free(endpoint_set->table);
    free(endpoint_set);
}

void endpoint_set_close(struct endpoint_set *endpoint_set)
{
    names_end(endpoint_set);
    health_end(endpoint_set);
    poller_clear(&endpoint_set->poller);
    iobuf_pool_clear(&endpoint_set->buffers);
    endpoint_set->base = NULL;
}

struct endpoint_set *endpoint_set_new(struct event_base *base, struct policy *policy,
                                      const struct endpoint_set *before,
                                      const struct endpoint_set_listener *listener)
{
    struct endpoint_set *endpoint_set = calloc(1, sizeof *endpoint_set);

    if (!endpoint_set)
        return NULL;
    atomic_init(&endpoint_set->references, 1);
    endpoint_set->policy = policy_hold(policy);
    endpoint_set->base = base;
    endpoint_set->listener = *listener;
    endpoint_set->created_us = clock_us();
    pthread_mutex_init(&endpoint_set->lock, NULL);
    TAILQ_INIT(&endpoint_set->checks);
    endpoint_set->table = calloc(policy->upstream_count, sizeof *endpoint_set->table);
    bool good = endpoint_set->table && poller_init(&endpoint_set->poller, base, 16) == 0 &&
                names_begin(endpoint_set, before);
    for (unsigned u = 0; good && u < policy->upstream_count; u++)
        good = endpoint_set_rebuild(endpoint_set, &policy->upstreams[u], before);
    if (!good) {
        endpoint_set_close(endpoint_set);
        endpoint_set_drop(endpoint_set);
        return NULL;
    }
    endpoint_set->ready = true;
    return endpoint_set;
}

struct policy *endpoint_set_policy(const struct endpoint_set *endpoint_set)
{
    return endpoint_set->policy;
}

unsigned endpoint_set_version(const struct endpoint_set *endpoint_set)
{
    return atomic_load_explicit(&endpoint_set->version, memory_order_acquire);
}

bool endpoint_set_is_resolved(const struct endpoint_set *endpoint_set)
{
    return atomic_load_explicit(&endpoint_set->resolved, memory_order_acquire);
}

unsigned endpoint_set_list(struct endpoint_set *endpoint_set, unsigned upstream,
                           struct endpoint *endpoints[static ENDPOINTS_MAX])
{
    struct upstream_endpoints *row = &endpoint_set->table[upstream];

    pthread_mutex_lock(&endpoint_set->lock);
    unsigned count = row->count;
    for (unsigned i = 0; i < count; i++)
        endpoints[i] = endpoint_hold(row->endpoints[i]);
    pthread_mutex_unlock(&endpoint_set->lock);
    return count;
}
