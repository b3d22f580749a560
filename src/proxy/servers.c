/* servers.c - whom a worker's links go to: the members of the roster, as far as they are up. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "proxy/upstream_internal.h"

enum {
    FAILURES_MAX = 5,         /* bad answers in a row that eject a server which has others beside it */
    EJECTED_MIN_US = 1000000, /* how long a server is left alone, doubled with every failed probe */
    EJECTED_MAX_US = 32 * 1000000
};

/* ---- a server's state -------------------------------------------------------------------------------- */

/* One line a change of state, not a request, and for a server that comes and goes not more than one a second. */
static void say_ejected(struct server *server, const char *why)
{
    uint64_t now = clock_us();

    struct slice whom = {(const char *)&server->member, sizeof server->member}; /* the workers' common one */

    server->said = now - server->said_us > 1000000 && log_is_first(whom, "ejected");
    if (!server->said)
        return;
    server->said_us = now;
    log_warn("upstream %s: server %s: %s; ejected until it accepts connections again",
             server->pool->settings->name, server->member->text, why);
}

void server_eject(struct server *server, const char *why)
{
    const struct generation *g = server->pool->generation;

    if (server->ejected && (deadline_is_armed(&server->probe) || server->probing))
        return; /* one probe at a time: what becomes of it decides */
    if (!server->ejected)
        say_ejected(server, why);
    if (!server->ejected)
        atomic_fetch_add_explicit(&server->member->ejected, 1, memory_order_relaxed);
    server->ejected_us = server->ejected ? server->ejected_us * 2 : EJECTED_MIN_US;
    if (server->ejected_us > EJECTED_MAX_US)
        server->ejected_us = EJECTED_MAX_US;
    server->ejected = true;
    if (!server->gone && g == g->worker->now && !g->worker->stopping)
        deadline_arm(&g->worker->queue.probe, &server->probe, clock_us(), server->ejected_us);
}

static void forget_ejection(struct server *server)
{
    if (server->ejected)
        atomic_fetch_sub_explicit(&server->member->ejected, 1, memory_order_relaxed);
    server->ejected = false;
}

void server_admit(struct server *server, const char *what)
{
    server->failures = 0;
    if (!server->ejected)
        return;
    forget_ejection(server);
    deadline_cancel(&server->probe);
    log_at(server->said ? LEVEL_INFO : LEVEL_DEBUG, "upstream %s: server %s %s again",
           server->pool->settings->name, server->member->text, what);
}

void upstream_note_answer(struct link *link)
{
    server_admit(link->server, "answers");
}

void upstream_note_failure(struct link *link, const char *why)
{
    struct server *server = link->server;

    if (++server->failures >= FAILURES_MAX && server->pool->count > 1)
        server_eject(server, why);
}

/* ---- choosing ---------------------------------------------------------------------------------------- */

bool upstreams_ready(const struct generation *g)
{
    for (unsigned i = 0; i < g->policy->upstream_count; i++) {
        const struct pool *pool = &g->pools[i];
        bool up = false;
        for (unsigned s = 0; s < pool->slots && !up; s++)
            up =
                pool->servers[s] && !pool->servers[s]->ejected && member_is_healthy(pool->servers[s]->member);
        if (!up)
            return false;
    }
    return true;
}

bool servers_any(const struct pool *pool)
{
    for (unsigned i = 0; i < pool->slots; i++)
        if (pool->servers[i] && member_is_healthy(pool->servers[i]->member))
            return true;
    return false;
}

struct server *servers_choose(struct pool *pool, const struct upstream_tries *tries)
{
    struct server *best = NULL;

    pool->next = pool->slots ? (pool->next + 1) % pool->slots : 0;
    for (unsigned i = 0; i < pool->slots; i++) {
        unsigned slot = pool->next + i < pool->slots ? pool->next + i : pool->next + i - pool->slots;
        struct server *s = pool->servers[slot];
        if (!s || (tries->servers >> slot & 1) || !member_is_healthy(s->member))
            continue;
        if (!best || (best->ejected && !s->ejected) ||
            (best->ejected == s->ejected && s->outstanding < best->outstanding))
            best = s;
    }
    return best;
}

/* ---- coming and going -------------------------------------------------------------------------------- */

static void server_free(struct server *server)
{
    forget_ejection(server);
    deadline_cancel(&server->probe);
    tls_resumption_clear(&server->resumption);
    member_drop(server->member);
    free(server);
}

/* Takes over `member`. */
static void server_arrives(struct pool *pool, struct member *member)
{
    struct server *server = calloc(1, sizeof *server);
    unsigned slot = 0;

    while (slot < MEMBERS_MAX && pool->servers[slot])
        slot++;
    if (!server || slot == MEMBERS_MAX) {
        free(server);
        member_drop(member);
        return;
    }
    server->member = member;
    server->pool = pool;
    server->slot = slot;
    TAILQ_INIT(&server->pooled);
    pool->servers[slot] = server;
    pool->count++;
    if (slot >= pool->slots)
        pool->slots = slot + 1;
}

static void hang_up(struct server *server)
{
    deadline_cancel(&server->probe);
    if (server->probing)
        link_close(server->probing);
    for (struct link *link; (link = TAILQ_FIRST(&server->pooled));)
        link_close(link);
}

/* Exchanges with it go on to their end. */
static void server_leaves(struct server *server)
{
    struct pool *pool = server->pool;

    pool->servers[server->slot] = NULL;
    pool->count--;
    while (pool->slots && !pool->servers[pool->slots - 1])
        pool->slots--;
    hang_up(server);
    server->gone = true;
    TAILQ_INSERT_TAIL(&pool->leaving, server, link);
    server_bury_if_gone(server);
}

void server_bury_if_gone(struct server *server)
{
    if (!server->gone || server->outstanding || server->pooled_count)
        return;
    TAILQ_REMOVE(&server->pool->leaving, server, link);
    TAILQ_INSERT_TAIL(&server->pool->generation->worker->server_graveyard, server, link);
}

void servers_bury(struct worker *w)
{
    for (struct server *server; (server = TAILQ_FIRST(&w->server_graveyard));) {
        TAILQ_REMOVE(&w->server_graveyard, server, link);
        server_free(server);
    }
}

static bool is_among(const struct member *member, struct member *const *members, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        if (members[i] == member)
            return true;
    return false;
}

static bool is_in_pool(const struct pool *pool, const struct member *member)
{
    for (unsigned i = 0; i < pool->slots; i++)
        if (pool->servers[i] && pool->servers[i]->member == member)
            return true;
    return false;
}

static void pool_refresh(struct pool *pool, struct roster *roster)
{
    struct member *members[MEMBERS_MAX];
    unsigned count = roster_members(roster, pool->settings->index, members);

    for (unsigned i = 0; i < MEMBERS_MAX; i++)
        if (pool->servers[i] && !is_among(pool->servers[i]->member, members, count))
            server_leaves(pool->servers[i]);
    for (unsigned i = 0; i < count; i++)
        if (is_in_pool(pool, members[i]))
            member_drop(members[i]);
        else
            server_arrives(pool, members[i]);
}

void servers_refresh(struct generation *g)
{
    unsigned version = roster_version(g->roster);

    if (version == g->roster_version)
        return;
    g->roster_version = version;
    for (unsigned i = 0; i < g->policy->upstream_count; i++)
        pool_refresh(&g->pools[i], g->roster);
}

/* ---- the pools of a generation ----------------------------------------------------------------------- */

int upstream_init(struct generation *g)
{
    const struct policy *policy = g->policy;

    if (!(g->pools = calloc(policy->upstream_count ? policy->upstream_count : 1, sizeof *g->pools)))
        return -1;
    for (unsigned i = 0; i < policy->upstream_count; i++) {
        g->pools[i].settings = &policy->upstreams[i];
        g->pools[i].generation = g;
        TAILQ_INIT(&g->pools[i].leaving);
    }
    g->roster_version = roster_version(g->roster) - 1;
    servers_refresh(g);
    return 0;
}

void upstream_retire(struct generation *g)
{
    for (unsigned i = 0; i < g->policy->upstream_count; i++)
        for (unsigned s = 0; s < g->pools[i].slots; s++)
            if (g->pools[i].servers[s])
                hang_up(g->pools[i].servers[s]);
}

void upstream_free(struct generation *g)
{
    if (!g->pools)
        return;
    upstream_retire(g);
    upstreams_bury(g->worker); /* they point at these pools */
    for (unsigned i = 0; i < g->policy->upstream_count; i++) {
        struct pool *pool = &g->pools[i];
        for (struct server *server; (server = TAILQ_FIRST(&pool->leaving));) {
            TAILQ_REMOVE(&pool->leaving, server, link);
            server_free(server);
        }
        for (unsigned s = 0; s < pool->slots; s++)
            if (pool->servers[s])
                server_free(pool->servers[s]);
    }
    free(g->pools);
    g->pools = NULL;
}
