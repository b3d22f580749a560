#include <stdlib.h>

#include "base/log.h"
#include "proxy/roster_internal.h"

/* ---- members ----------------------------------------------------------------------------------------- */

static struct member *member_hold(struct member *member)
{
    atomic_fetch_add_explicit(&member->references, 1, memory_order_relaxed);
    return member;
}

void member_drop(struct member *member)
{
    if (!member || atomic_fetch_sub_explicit(&member->references, 1, memory_order_acq_rel) > 1)
        return;
    free(member->text);
    free(member);
}

/* "api.internal:80", which is 10.0.0.7 now: "api.internal:80 (10.0.0.7:80)". */
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

static struct member *member_new(const struct upstream_server *server, const struct address *address)
{
    struct member *member = calloc(1, sizeof *member);

    if (!member || !(member->text = text_for(server, address))) {
        free(member);
        return NULL;
    }
    atomic_init(&member->references, 1);
    member->settings = server;
    member->address = *address;
    return member;
}

static bool same_address(const struct address *a, const struct address *b)
{
    return a->length == b->length && memcmp(&a->any, &b->any, a->length) == 0;
}

/* ---- the table --------------------------------------------------------------------------------------- */

/* What an upstream's servers are now, as far as there is room. */
struct wanted {
    struct {
        const struct upstream_server *server;
        struct address address;
    } at[MEMBERS_MAX];
    unsigned count, left_out;
};

/* One address is one server, however often it is written, unless it goes by several names. */
static void want(struct wanted *wanted, const struct upstream_server *server, const struct address *address)
{
    for (unsigned i = 0; i < wanted->count; i++)
        if (same_address(&wanted->at[i].address, address) &&
            slice_equal(slice_of(wanted->at[i].server->host), slice_of(server->host)))
            return;
    if (wanted->count == MEMBERS_MAX) {
        wanted->left_out++;
        return;
    }
    wanted->at[wanted->count].server = server;
    wanted->at[wanted->count++].address = *address;
}

static void want_all(const struct roster *roster, const struct upstream *upstream, struct wanted *wanted)
{
    for (unsigned s = 0; s < upstream->server_count; s++) {
        const struct upstream_server *server = &upstream->servers[s];
        const struct name *name = server->address.length ? NULL : name_of(roster, server);
        if (server->address.length)
            want(wanted, server, &server->address);
        for (unsigned i = 0; name && i < name->count; i++) {
            struct address address = {.length = 0};
            address_of_ip(&name->ips[i], server->port, &address);
            want(wanted, server, &address);
        }
    }
}

static struct member *find(const struct row *row, const struct upstream_server *server,
                           const struct address *address)
{
    for (unsigned i = 0; i < row->count; i++)
        if (row->members[i]->settings == server && same_address(&row->members[i]->address, address))
            return row->members[i];
    return NULL;
}

/* A reload does not make a server healthy. */
static void take_over(struct member *member, const struct upstream *upstream, const struct roster *before)
{
    const struct policy *policy = before ? before->policy : NULL;

    if (!upstream->health.path)
        return;
    for (unsigned u = 0; policy && u < policy->upstream_count; u++) {
        const struct row *row = &before->table[u];
        if (strcmp(policy->upstreams[u].name, upstream->name) != 0 || !policy->upstreams[u].health.path)
            continue;
        for (unsigned i = 0; i < row->count; i++)
            if (strcmp(row->members[i]->settings->text, member->settings->text) == 0 &&
                same_address(&row->members[i]->address, &member->address))
                atomic_init(&member->failing, !member_is_healthy(row->members[i]));
    }
}

/* The row as it is wanted, of members that are there already and new ones. True: it differs. */
static bool make_row(struct row *next, const struct row *row, const struct wanted *wanted,
                     const struct upstream *upstream, const struct roster *before)
{
    bool changed = wanted->count != row->count;

    next->count = 0;
    for (unsigned i = 0; i < wanted->count; i++) {
        struct member *member = find(row, wanted->at[i].server, &wanted->at[i].address);
        changed |= !member;
        if (member)
            (void)member_hold(member);
        else if ((member = member_new(wanted->at[i].server, &wanted->at[i].address)))
            take_over(member, upstream, before);
        if (member)
            next->members[next->count++] = member;
    }
    return changed;
}

static void row_clear(struct row *row)
{
    for (unsigned i = 0; i < row->count; i++)
        member_drop(row->members[i]);
    row->count = 0;
}

void roster_rebuild(struct roster *roster, const struct upstream *upstream, const struct roster *before)
{
    struct row *row = &roster->table[upstream->index], next, last = *row;
    struct wanted wanted = {.count = 0};

    want_all(roster, upstream, &wanted);
    if (!make_row(&next, row, &wanted, upstream, before)) {
        row_clear(&next);
        return;
    }
    if (wanted.left_out)
        log_warn("upstream %s: %u of its %u addresses are left out", upstream->name, wanted.left_out,
                 wanted.left_out + MEMBERS_MAX);
    pthread_mutex_lock(&roster->lock);
    *row = next;
    pthread_mutex_unlock(&roster->lock);
    row_clear(&last);
    atomic_fetch_add_explicit(&roster->version, 1, memory_order_release);
    health_follow(roster, upstream);
    if (roster->ready)
        roster->listener.changed(roster->listener.context);
}

/* ---- a roster's life --------------------------------------------------------------------------------- */

struct roster *roster_hold(struct roster *roster)
{
    atomic_fetch_add_explicit(&roster->references, 1, memory_order_relaxed);
    return roster;
}

void roster_drop(struct roster *roster)
{
    if (!roster || atomic_fetch_sub_explicit(&roster->references, 1, memory_order_acq_rel) > 1)
        return;
    for (unsigned u = 0; roster->table && u < roster->policy->upstream_count; u++)
        row_clear(&roster->table[u]);
    pthread_mutex_destroy(&roster->lock);
    policy_drop(roster->policy);
    free(roster->table);
    free(roster);
}

void roster_close(struct roster *roster)
{
    names_end(roster);
    health_end(roster);
    poller_clear(&roster->poller);
    iobuf_pool_clear(&roster->buffers);
    roster->base = NULL;
}

struct roster *roster_new(struct event_base *base, struct policy *policy, const struct roster *before,
                          const struct roster_listener *listener)
{
    struct roster *roster = calloc(1, sizeof *roster);

    if (!roster)
        return NULL;
    atomic_init(&roster->references, 1);
    roster->policy = policy_hold(policy);
    roster->base = base;
    roster->listener = *listener;
    pthread_mutex_init(&roster->lock, NULL);
    TAILQ_INIT(&roster->checks);
    roster->table = calloc(policy->upstream_count, sizeof *roster->table);
    if (!roster->table || poller_init(&roster->poller, base, 16) != 0 || !names_begin(roster, before)) {
        roster_close(roster);
        roster_drop(roster);
        return NULL;
    }
    for (unsigned u = 0; u < policy->upstream_count; u++)
        roster_rebuild(roster, &policy->upstreams[u], before);
    roster->ready = true;
    return roster;
}

struct policy *roster_policy(const struct roster *roster)
{
    return roster->policy;
}

unsigned roster_version(const struct roster *roster)
{
    return atomic_load_explicit(&roster->version, memory_order_acquire);
}

bool roster_is_settled(const struct roster *roster)
{
    return atomic_load_explicit(&roster->settled, memory_order_acquire);
}

unsigned roster_members(struct roster *roster, unsigned upstream, struct member *members[static MEMBERS_MAX])
{
    struct row *row = &roster->table[upstream];

    pthread_mutex_lock(&roster->lock);
    unsigned count = row->count;
    for (unsigned i = 0; i < count; i++)
        members[i] = member_hold(row->members[i]);
    pthread_mutex_unlock(&roster->lock);
    return count;
}
