/* ejection.c - ejects failing servers for a while (outlier detection).
 *
 *                 no connection                       a probe (a bare connection) succeeds
 *   gets requests ------------------> EJECTED_DOWN -------------------------------------------> gets requests
 *                 too many requests fail                eject.time has passed, and a probe succeeds
 *                 ------------------> EJECTED_FAILING -----------------------------------------^
 *
 * Failed requests eject a server only while others are left (eject.at_most). If all servers fail,
 * requests fail as well, and no server gets the load of the others. The failures of one client
 * alone eject no server. */
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/values.h"
#include "upstream/upstream_internal.h"

enum {
    DOWN_MIN_US = 1000000, /* from a failed connection to the first probe; doubled per failure */
    DOWN_MAX_US = 32 * 1000000,
    RELAPSE_TIMES = 10, /* times eject.time: a failure this soon after the return is a relapse */
    RELAPSES_MAX = 5    /* each relapse doubles the time */
};

/* Logs an ejection: one line per change of state, at most one per second per server. */
static void report_ejected(struct server *server, const char *why, const char *until)
{
    uint64_t now = clock_us();

    struct slice whom = {(const char *)&server->endpoint,
                         sizeof server->endpoint}; /* the endpoint, common to all workers */

    server->logged = now - server->logged_us > 1000000 && log_is_first(whom, "ejected");
    if (!server->logged)
        return;
    server->logged_us = now;
    server->return_logged = false;
    log_warn("upstream %s: server %s: %s; ejected %s", server->pool->settings->name,
             server->endpoint->text, why, until);
}

/* Arms the deadline of the next probe, unless the server or its pool is no longer used. */
static void probe_after(struct server *server, uint64_t after_us)
{
    struct upstream_worker *w = server->pool->pools->worker;

    server->ejected_us = after_us;
    if (server_is_in_use(server) && !w->stopping)
        deadline_arm(&w->queue.probe, &server->probe, clock_us(), after_us);
}

/* Ejects the server for at least `after_us`. */
static void eject_for(struct server *server, enum ejected ejected, uint64_t after_us)
{
    if (server->ejected == EJECTED_NOT)
        atomic_fetch_add_explicit(&server->endpoint->ejected, 1, memory_order_relaxed);
    if (ejected == EJECTED_DOWN && server->ejected != EJECTED_DOWN) {
        atomic_store_explicit(&server->endpoint->down_us, clock_us(), memory_order_relaxed);
        atomic_fetch_add_explicit(&server->endpoint->down, 1, memory_order_release);
    }
    server->ejected = ejected;
    probe_after(server, after_us);
}

static void count_ejection(const struct server *server, enum ejection why)
{
    counter_add(&server->pool->pools->worker->stats.ejections[why], 1);
    counter_add(&server->counts[SERVER_EJECTIONS], 1);
}

/* One probe at a time: its result decides. */
static bool awaits_probe(const struct server *server)
{
    return server->ejected != EJECTED_NOT && (deadline_is_armed(&server->probe) || server->probing);
}

void server_eject(struct server *server, const char *why)
{
    uint64_t after_us = DOWN_MIN_US;

    if (!server_is_in_use(server) || awaits_probe(server))
        return;
    if (server->ejected == EJECTED_DOWN)
        after_us = server->ejected_us * 2 < DOWN_MAX_US ? server->ejected_us * 2 : DOWN_MAX_US;
    else
        count_ejection(server, EJECTION_CONNECT);
    if (server->ejected != EJECTED_DOWN || server->return_logged)
        report_ejected(server, why, "until it accepts connections again");
    eject_for(server, EJECTED_DOWN, after_us);
}

void server_probe_again(struct server *server)
{
    if (server->ejected != EJECTED_NOT && !awaits_probe(server))
        probe_after(server, server->ejected_us);
}

void server_forget_ejection(struct server *server)
{
    if (server->ejected != EJECTED_NOT)
        atomic_fetch_sub_explicit(&server->endpoint->ejected, 1, memory_order_relaxed);
    if (server->ejected == EJECTED_DOWN)
        atomic_fetch_sub_explicit(&server->endpoint->down, 1, memory_order_relaxed);
    server->ejected = EJECTED_NOT;
}

void server_admit(struct server *server, const char *what)
{
    bool failing = server->ejected == EJECTED_FAILING;

    if (server->ejected == EJECTED_NOT)
        return;
    server_forget_ejection(server);
    deadline_cancel(&server->probe);
    server->failures = 0;
    recent_init(&server->outcomes, server->pool->settings->eject.window_us);
    if (failing)
        server->returned_us = clock_us();
    server->return_logged |= server->logged;
    log_at(server->logged ? LEVEL_INFO : LEVEL_DEBUG, "upstream %s: server %s %s again",
           server->pool->settings->name, server->endpoint->text, failing ? "gets requests" : what);
}

/* ---- failures -------------------------------------------------------------------------------- */

/* Returns whether another server is left and eject.at_most is not reached. */
static bool may_be_ejected(const struct server *server)
{
    const struct pool *pool = server->pool;
    unsigned others = 0, ejected = 0, most;

    for (unsigned i = 0; i < pool->slots; i++) {
        const struct server *s = pool->servers[i];
        if (!s || s == server)
            continue;
        ejected += s->ejected != EJECTED_NOT;
        others += s->ejected == EJECTED_NOT && endpoint_is_healthy(s->endpoint);
    }
    most = (unsigned)(pool->count * (uint64_t)pool->settings->eject.at_most / SHARE_WHOLE);
    if (most == 0 && pool->settings->eject.at_most > 0)
        most = 1;
    return others > 0 && ejected < most;
}

/* Returns the ejection time: eject.time, doubled each time the server fails again soon after its
 * return. */
static uint64_t time_out_us(struct server *server)
{
    uint64_t time_us = server->pool->settings->eject.time_us;

    if (server->returned_us && clock_us() - server->returned_us <= RELAPSE_TIMES * time_us)
        server->relapses += server->relapses < RELAPSES_MAX;
    else
        server->relapses = 0;
    return time_us << server->relapses;
}

static void eject_failing(struct server *server, enum ejection reason, const char *why)
{
    uint64_t time_us = time_out_us(server), now = clock_cached_us();
    char until[48], text[256];

    if (reason == EJECTION_FAILURES)
        snprintf(text, sizeof text, "%u failed requests in a row (the last one: %s)",
                 server->failures, why);
    else
        snprintf(text, sizeof text, "%u of its last %u requests failed (the last one: %s)",
                 recent_count(&server->outcomes, OUTCOME_FAILURE, now),
                 recent_count(&server->outcomes, OUTCOME_REQUEST, now), why);
    snprintf(until, sizeof until, "for %g s", (double)time_us / 1e6);
    report_ejected(server, text, until);
    count_ejection(server, reason);
    eject_for(server, EJECTED_FAILING, time_us);
}

/* A client can make its own requests fail. So the failures, the last `count` ones, eject the server
 * only if two clients had them, or if its last health check has failed too. */
static bool are_confirmed(const struct server *server, uint64_t count)
{
    return count > server->client_failures ||
           atomic_load_explicit(&server->endpoint->check_failed, memory_order_relaxed);
}

/* Ejects the server if its recent outcomes reach eject.failures or eject.failure_rate. */
static void eject_if_due(struct server *server, const char *why, uint64_t now)
{
    const struct upstream_eject *settings = &server->pool->settings->eject;
    uint64_t requests = recent_count(&server->outcomes, OUTCOME_REQUEST, now),
             failures = recent_count(&server->outcomes, OUTCOME_FAILURE, now);
    bool in_a_row = settings->failures && server->failures >= settings->failures &&
                    are_confirmed(server, server->failures);
    bool often = settings->failure_rate && requests >= settings->requests &&
                 failures * SHARE_WHOLE >= requests * (uint64_t)settings->failure_rate &&
                 are_confirmed(server, failures);

    if ((in_a_row || often) && server->ejected == EJECTED_NOT && server_is_in_use(server) &&
        may_be_ejected(server))
        eject_failing(server, in_a_row ? EJECTION_FAILURES : EJECTION_RATE, why);
}

static void note_request(struct link *link, uint64_t now)
{
    if (link->outcome != REQUEST_UNNOTED)
        return;
    link->outcome = REQUEST_NOTED;
    recent_add(&link->server->outcomes, OUTCOME_REQUEST, now);
}

static void note_failed_client(struct server *server, const struct ip *client)
{
    bool same = memcmp(&server->failed_client, client, sizeof *client) == 0;

    server->client_failures = same ? server->client_failures + 1 : 1;
    server->failed_client = *client;
}

void upstream_note_failure(struct link *link, const struct ip *client, const char *why)
{
    struct server *server = link->server;
    uint64_t now = clock_cached_us();

    if (link->outcome == REQUEST_FAILED)
        return;
    note_request(link, now);
    link->outcome = REQUEST_FAILED;
    recent_add(&server->outcomes, OUTCOME_FAILURE, now);
    server->failures++;
    note_failed_client(server, client);
    eject_if_due(server, why, now);
}

bool upstream_is_failure(const struct link *link, uint16_t status)
{
    return status != 431 && statuses_hold(link->server->pool->settings->eject.statuses, status);
}

void upstream_note_answer(struct link *link)
{
    struct server *server = link->server;

    note_request(link, clock_cached_us());
    server->failures = 0;
    if (atomic_load_explicit(&server->endpoint->down, memory_order_relaxed))
        atomic_store_explicit(&server->endpoint->answered_us, clock_us(), memory_order_relaxed);
    if (server->ejected == EJECTED_DOWN)
        server_admit(server, "answers");
}
