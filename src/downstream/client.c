#include "downstream/client.h"

#include <assert.h>
#include <limits.h>
#include <stdlib.h>

#include "downstream/handoff.h"
#include "downstream/peer_counts.h"
#include "downstream/socket_client.h"

enum {
    IDLE_MIN_MS = 200,      /* minimum idle time before eviction: a request may be in transit */
    LINGER_MIN_MS = 1000,   /* the same for lingering: the response may be in transit */
    HEAD_MIN_MS = 1000,     /* the same for incomplete heads */
    SERVED_MIN_MS = 1000,   /* time that a connection is served while others wait for a slot */
    EVICTION_LOOKS = 8,     /* maximum number of connections checked for input per eviction */
    CLIENTS_PER_BATCH = 128 /* sockets per epoll_wait; see LINKS_PER_BATCH in upstream.c */
};

static enum client_list_number list_of(const struct client *c, enum client_state state)
{
    static const enum client_list_number numbers[] = {[CLIENT_HEAD] = CLIENTS_HEADS,
                                                      [CLIENT_EXCHANGE] = CLIENTS_BUSY,
                                                      [CLIENT_IDLE] = CLIENTS_IDLE,
                                                      [CLIENT_DRAIN] = CLIENTS_LINGERING,
                                                      [CLIENT_LINGER] = CLIENTS_LINGERING};

    assert(state != CLIENT_CLOSED);
    return c->silent ? CLIENTS_SILENT : numbers[state];
}

static inline void count_listed(struct client *c, enum client_list_number list, int change)
{
    if (list == CLIENTS_SILENT)
        c->worker->downstream->silent_count += (unsigned)change;
    else if (list == CLIENTS_LINGERING)
        counter_add(&c->worker->stats.connections_lingering, (uint64_t)change);
}

static void enter_list(struct client *c, enum client_list_number list)
{
    TAILQ_INSERT_TAIL(&c->worker->downstream->lists[list], c, link);
    count_listed(c, list, 1);
}

static inline void leave_list(struct client *c, enum client_list_number list)
{
    TAILQ_REMOVE(&c->worker->downstream->lists[list], c, link);
    count_listed(c, list, -1);
}

void client_begin(struct client *c, struct worker *w, const struct address *peer, bool counted)
{
    MAGIC_SET(c, CLIENT_MAGIC);
    c->worker = w;
    c->counted = counted;
    c->silent = true;
    client_origin_set_peer(&c->origin, peer);
    c->opened_ms = c->since_ms = client_now_ms();
    enter_list(c, list_of(c, c->state));
    deadline_arm(&w->downstream->queue.head, &c->deadline, clock_us(),
                 w->policy->timeouts.request_header_us);
    counter_add(&w->stats.connections_open, 1);
}

void client_enter(struct client *c, enum client_state state)
{
    enum client_list_number from = list_of(c, c->state), to = list_of(c, state);

    c->state = state;
    if (from == to)
        return;
    leave_list(c, from);
    enter_list(c, to);
}

void client_close(struct client *c)
{
    struct worker *w = c->worker;
    struct address peer;

    MAGIC_CHECK(c, CLIENT_MAGIC);
    if (c->state == CLIENT_CLOSED)
        return;
    c->protocol->end(c);
    leave_list(c, list_of(c, c->state));
    c->state = CLIENT_CLOSED;
    deadline_cancel(&c->deadline);
    timer_cancel(&w->downstream->expiries, &c->expiry);
    TAILQ_INSERT_TAIL(&w->downstream->closed, c, link);
    counter_subtract(&w->stats.connections_open, 1);
    slot_free(w);
    if (c->counted)
        peer_uncount(w, address_of_peer(&c->origin.peer, &peer));
}

void client_speaks(struct client *c)
{
    leave_list(c, list_of(c, c->state));
    c->silent = false;
    enter_list(c, list_of(c, c->state));
}

void clients_for_each(struct worker *w, void (*visit)(struct client *c, void *context),
                      void *context)
{
    for (unsigned i = 0; i < CLIENT_LISTS; i++)
        for (struct client *c = TAILQ_FIRST(&w->downstream->lists[i]), *next; c; c = next) {
            next = TAILQ_NEXT(c, link);
            visit(c, context);
        }
}

void client_cut(struct client *c, enum cause cause)
{
    if (c->state == CLIENT_EXCHANGE)
        c->protocol->cut(c, cause);
    else
        client_close(c);
}

static void stop_now(struct client *c, void *context)
{
    (void)context;
    client_cut(c, CAUSE_SHUTDOWN);
}

void clients_cut(struct worker *w)
{
    clients_for_each(w, stop_now, NULL);
}

/* Returns the first connection of the list that has no unread input, if it has been listed for
 * `since_ms`. Connections with unread input are served in this loop iteration or the next. Only a
 * few of them are skipped, to bound the search. */
static struct client *oldest_of(const struct client_list *list, uint32_t since_ms)
{
    struct client *c = TAILQ_FIRST(list);

    for (unsigned i = 0; c && c->protocol->has_input(c); i++)
        c = i < EVICTION_LOOKS ? TAILQ_NEXT(c, link) : NULL;
    return c && client_now_ms() - c->since_ms >= since_ms ? c : NULL;
}

/* Returns the oldest incomplete head if it has taken HEAD_MIN_MS and has no unread input. */
static struct client *slowest_head(const struct worker *w)
{
    struct client *c = TAILQ_FIRST(&w->downstream->lists[CLIENTS_HEADS]);

    return c && client_now_ms() - c->since_ms >= HEAD_MIN_MS && !c->protocol->has_input(c) ? c
                                                                                           : NULL;
}

/* Silent connections must not keep active clients out, nor evict served connections. If more
 * than a quarter of the slots are silent, only silent connections are evicted: one of them is old
 * enough soon. */
struct client *client_to_evict(struct worker *w, bool for_slot)
{
    const struct client_list *lists = w->downstream->lists;
    struct client *c = oldest_of(&lists[CLIENTS_SILENT], IDLE_MIN_MS),
                  *lingers = TAILQ_FIRST(&lists[CLIENTS_LINGERING]);
    unsigned slots = worker_connections_max(w);

    if (c || (slots && w->downstream->silent_count > slots / 4))
        return c;
    if ((c = oldest_of(&lists[CLIENTS_IDLE], IDLE_MIN_MS)))
        return c;
    if (lingers && client_now_ms() - lingers->since_ms >= LINGER_MIN_MS)
        return lingers;
    if (!for_slot)
        return NULL;
    return (c = slowest_head(w)) ? c : slow_clients_slowest(w);
}

bool clients_any(const struct worker *w)
{
    for (unsigned i = 0; i < CLIENT_LISTS; i++)
        if (!TAILQ_EMPTY(&w->downstream->lists[i]))
            return true;
    return false;
}

bool client_gives_way(const struct client *c)
{
    return c->worker->draining || c->ends ||
           (c->worker->downstream->slots_exhausted &&
            client_now_ms() - c->opened_ms >= SERVED_MIN_MS);
}

void client_evict(struct client *c)
{
    counter_add(&c->worker->stats.connections_evicted, 1);
    client_cut(c, CAUSE_CLIENT_STALLED);
}

/* ---- deadlines ------------------------------------------------------------------------------- */

static struct client *of_deadline(struct deadline *deadline)
{
    struct client *c = CONTAINER_OF(deadline, struct client, deadline);
    MAGIC_CHECK(c, CLIENT_MAGIC);
    return c;
}

static void head_passed(struct deadline *deadline)
{
    struct client *c = of_deadline(deadline);
    c->protocol->head_timed_out(c);
}

/* On a busy machine the deadline may fire before timely input is read. */
static void idle_passed(struct deadline *deadline)
{
    struct client *c = of_deadline(deadline);
    if (c->protocol->has_input(c))
        deadline_arm(&c->worker->downstream->queue.idle, &c->deadline, clock_us(),
                     c->worker->policy->timeouts.keepalive_us);
    else
        c->protocol->idle_timed_out(c);
}

/* ---- of a worker ----------------------------------------------------------------------------- */

bool clients_init(struct worker *w)
{
    struct downstream_worker *d = w->downstream = calloc(1, sizeof *d);

    if (!d)
        return false;
    handoff_init(&d->handoff);
    for (unsigned i = 0; i < CLIENT_LISTS; i++)
        TAILQ_INIT(&d->lists[i]);
    TAILQ_INIT(&d->closed);
    deadline_queue_init(&w->deadlines, &d->queue.head, head_passed);
    deadline_queue_init(&w->deadlines, &d->queue.idle, idle_passed);
    linger_init(w);
    return poller_init(&d->poller, w->base, CLIENTS_PER_BATCH) == 0;
}

void clients_add_protocol(struct worker *w, struct protocol_worker *protocol)
{
    protocol->next = w->downstream->protocols;
    w->downstream->protocols = protocol;
}

void clients_flush(struct worker *w)
{
    for (struct protocol_worker *p = w->downstream->protocols; p; p = p->next)
        p->flush(p);
}

static void stop_client(struct client *c, void *context)
{
    (void)context;
    c->protocol->stop(c);
}

void clients_stop(struct worker *w)
{
    clients_for_each(w, stop_client, NULL);
}

void clients_free_closed(struct worker *w)
{
    for (struct client *c; (c = TAILQ_FIRST(&w->downstream->closed));) {
        TAILQ_REMOVE(&w->downstream->closed, c, link);
        MAGIC_WIPE(c);
        free(c->origin.certificate);
        c->protocol->free(c);
    }
}

void clients_free(struct worker *w)
{
    struct downstream_worker *d = w->downstream;

    if (!d)
        return;
    handoff_clear(&d->handoff);
    timer_heap_clear(&d->expiries);
    for (struct protocol_worker *p; (p = d->protocols);) {
        d->protocols = p->next;
        p->free(p);
    }
    clients_free_closed(w);
    free_list_drop(&d->free_clients, UINT_MAX);
    poller_clear(&d->poller);
    free(d);
    w->downstream = NULL;
}
