/* slow_clients.c - finds connections whose client does not take its responses, to evict them when
 * slots are short.
 *
 * A connection is slow if every request of it waits for the client to take its response, and the
 * client took less than timeouts.send_min_rate for SLOW_MIN_MS. Each byte pays for its time at that
 * rate, to at most PAID_MAX_MS ahead: a kernel announces room in its receive buffer in large steps,
 * so the bytes of a slow but steady reader arrive in bursts.
 *
 * Requests pay nothing for this: connections are looked at only while slots are short, at most
 * every SWEEP_MS. Slow ones are moved to the front of the list, slowest first. */
#include "downstream/client.h"

enum {
    SLOW_MIN_MS = 2000,
    PAID_MAX_MS = 10000,
    SWEEP_MS = 100,
    SWEEP_GAP_MS = 1000, /* after a longer gap, earlier results are void */
    PICKS_MAX = 8        /* slow connections checked again per eviction */
};

static bool time_is_before(uint32_t a_ms, uint32_t b_ms)
{
    return (int32_t)(a_ms - b_ms) < 0;
}

/* Adds the time that the bytes taken since the last look pay for: from SLOW_MIN_MS ago to
 * PAID_MAX_MS ahead. */
static void pay(struct client *c, uint32_t now, uint64_t taken, bool first)
{
    uint64_t paid = (taken - c->slow.taken) * 1000 / c->worker->policy->timeouts.send_min_rate;
    uint32_t from = first ? now : c->slow.paid_until_ms;

    if (time_is_before(from, now - SLOW_MIN_MS))
        from = now - SLOW_MIN_MS;
    if (paid > now + PAID_MAX_MS - from)
        paid = now + PAID_MAX_MS - from;
    c->slow.paid_until_ms = from + (uint32_t)paid;
    c->slow.taken = taken;
}

/* Returns whether the connection is slow. */
static bool measure_client(struct client *c, uint32_t now, uint32_t sweep)
{
    bool first = c->slow.sweep != sweep - 1;
    uint64_t taken;

    c->slow.is_slow = false;
    if (!c->protocol->awaits_reader || !c->protocol->awaits_reader(c, &taken))
        return false;
    c->slow.sweep = sweep;
    if (first)
        c->slow.taken = 0;
    pay(c, now, taken, first);
    c->slow.is_slow = !time_is_before(now, c->slow.paid_until_ms + SLOW_MIN_MS);
    return c->slow.is_slow;
}

static void find_slow(struct worker *w, uint32_t now)
{
    struct downstream_worker *d = w->downstream;
    struct client_list *clients = &d->lists[CLIENTS_BUSY];
    struct client *last = NULL, *next;

    d->slow_sweep += now - d->slow_swept_ms > SWEEP_GAP_MS ? 2 : 1;
    d->slow_swept_ms = now;
    for (struct client *c = TAILQ_FIRST(clients); c; c = next) {
        next = TAILQ_NEXT(c, link);
        if (!measure_client(c, now, d->slow_sweep))
            continue;
        TAILQ_REMOVE(clients, c, link);
        if (last)
            TAILQ_INSERT_AFTER(clients, last, c, link);
        else
            TAILQ_INSERT_HEAD(clients, c, link);
        last = c;
    }
}

/* Returns whether the client has taken nothing since the last sweep either. */
static bool is_still_slow(struct client *c)
{
    uint64_t taken;
    return c->protocol->awaits_reader(c, &taken) && taken == c->slow.taken;
}

struct client *slow_clients_slowest(struct worker *w)
{
    struct client_list *clients = &w->downstream->lists[CLIENTS_BUSY];
    uint32_t now = client_now_ms();
    struct client *c;

    if (w->policy->timeouts.send_min_rate == 0)
        return NULL;
    if (now - w->downstream->slow_swept_ms >= SWEEP_MS)
        find_slow(w, now);
    for (unsigned i = 0; i < PICKS_MAX && (c = TAILQ_FIRST(clients)) && c->slow.is_slow; i++) {
        if (is_still_slow(c))
            return c;
        c->slow.is_slow = false;
        TAILQ_REMOVE(clients, c, link);
        TAILQ_INSERT_TAIL(clients, c, link);
    }
    return NULL;
}
