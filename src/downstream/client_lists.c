/* client_lists.c - a worker's client connections: state lists, close and eviction.
 *
 * The protocols and linger.c call this file. It calls none of them, except through
 * struct client_protocol. */
#include "base/clock.h"
#include "downstream/client_internal.h"
#include "downstream/handoff.h"
#include "downstream/peer_counts.h"

enum {
    IDLE_MIN_MS = 200,    /* minimum idle time before eviction: a request may be in transit */
    LINGER_MIN_MS = 1000, /* the same for lingering: the response may be in transit */
    HEAD_MIN_MS = 1000,   /* the same for incomplete heads */
    SERVED_MIN_MS = 1000, /* time that a connection is served while others wait for a slot */
    EVICTION_LOOKS = 8    /* maximum number of connections checked for input per eviction */
};

static struct client_list *list_of(const struct client *c, enum client_state state)
{
    struct worker *w = c->worker;

    if (c->silent)
        return &w->downstream->silent;
    switch (state) {
    case CLIENT_IDLE: return &w->downstream->idle;
    case CLIENT_DRAIN:
    case CLIENT_LINGER: return &w->downstream->lingering;
    case CLIENT_PROXY_HEADER:
    case CLIENT_HANDSHAKE:
    case CLIENT_HEAD: return &w->downstream->heads;
    default: return &w->downstream->clients;
    }
}

static void count(struct client *c, const struct client_list *list, int change)
{
    struct worker *w = c->worker;

    if (list == &w->downstream->silent)
        w->downstream->silent_count += (unsigned)change;
    if (list == &w->downstream->lingering)
        counter_add(&w->stats.connections_lingering, (uint64_t)change);
}

static void insert(struct client *c, struct client_list *list)
{
    TAILQ_INSERT_TAIL(list, c, link);
    count(c, list, 1);
}

static void take_out(struct client *c, struct client_list *list)
{
    TAILQ_REMOVE(list, c, link);
    count(c, list, -1);
}

void client_list_insert(struct client *c)
{
    insert(c, list_of(c, c->state));
}

static void client_list_remove(struct client *c)
{
    take_out(c, list_of(c, c->state));
}

void client_enter(struct client *c, enum client_state state)
{
    struct client_list *from = list_of(c, c->state), *to = list_of(c, state);

    c->state = state;
    if (from == to)
        return;
    take_out(c, from);
    insert(c, to);
}

void client_close(struct client *c)
{
    struct worker *w = c->worker;
    struct address peer;

    MAGIC_CHECK(c, CLIENT_MAGIC);
    if (c->state == CLIENT_CLOSED)
        return;
    if (c->protocol->end)
        c->protocol->end(c);
    client_list_remove(c);
    c->state = CLIENT_CLOSED;
    deadline_cancel(&c->deadline);
    stream_close(&c->stream, &w->buffers);
    TAILQ_INSERT_TAIL(&w->downstream->closed, c, link);
    counter_subtract(&w->stats.connections_open, 1);
    slot_free(w);
    if (c->counted)
        peer_uncount(w, address_of_peer(&c->origin.peer, &peer));
}

void client_speaks(struct client *c)
{
    client_list_remove(c);
    c->silent = false;
    client_list_insert(c);
}

void clients_cut(struct worker *w)
{
    for (struct client *c; (c = TAILQ_FIRST(&w->downstream->clients));)
        c->protocol->cut(c, CAUSE_SHUTDOWN);
    for (struct client *c; (c = TAILQ_FIRST(&w->downstream->silent));)
        client_close(c);
    for (struct client *c; (c = TAILQ_FIRST(&w->downstream->heads));)
        client_close(c);
    for (struct client *c; (c = TAILQ_FIRST(&w->downstream->idle));)
        client_close(c);
    for (struct client *c; (c = TAILQ_FIRST(&w->downstream->lingering));)
        client_close(c);
}

/* Returns the first connection of the list that has no unread input, if it has been listed for
 * `since_ms`. Connections with unread input are served in this loop iteration or the next. Only a
 * few of them are skipped, to bound the search. */
static struct client *oldest_of(const struct client_list *list, uint32_t since_ms)
{
    struct client *c = TAILQ_FIRST(list);

    for (unsigned i = 0; c && stream_has_input(&c->stream); i++)
        c = i < EVICTION_LOOKS ? TAILQ_NEXT(c, link) : NULL;
    return c && client_now_ms() - c->since_ms >= since_ms ? c : NULL;
}

/* Returns the oldest incomplete head if it has taken HEAD_MIN_MS and has no unread input. */
static struct client *slowest_head(const struct worker *w)
{
    struct client *c = TAILQ_FIRST(&w->downstream->heads);

    return c && client_now_ms() - c->since_ms >= HEAD_MIN_MS && !stream_has_unread(&c->stream)
               ? c
               : NULL;
}

/* Silent connections must not keep active clients out, nor evict served connections. If more
 * than a quarter of the slots are silent, only silent connections are evicted: one of them is old
 * enough soon. */
struct client *client_to_evict(struct worker *w, bool for_slot)
{
    struct client *c = oldest_of(&w->downstream->silent, IDLE_MIN_MS),
                  *lingers = TAILQ_FIRST(&w->downstream->lingering);
    unsigned slots = worker_connections_max(w);

    if (c || (slots && w->downstream->silent_count > slots / 4))
        return c;
    if ((c = oldest_of(&w->downstream->idle, IDLE_MIN_MS)))
        return c;
    if (lingers && client_now_ms() - lingers->since_ms >= LINGER_MIN_MS)
        return lingers;
    if (!for_slot)
        return NULL;
    return (c = slowest_head(w)) ? c : slow_clients_slowest(w);
}

bool clients_any(const struct worker *w)
{
    return !TAILQ_EMPTY(&w->downstream->clients) || !TAILQ_EMPTY(&w->downstream->heads) ||
           !TAILQ_EMPTY(&w->downstream->silent) || !TAILQ_EMPTY(&w->downstream->idle) ||
           !TAILQ_EMPTY(&w->downstream->lingering);
}

bool client_gives_way(const struct client *c)
{
    return c->worker->draining || (c->worker->downstream->slots_exhausted &&
                                   client_now_ms() - c->opened_ms >= SERVED_MIN_MS);
}

void client_evict(struct client *c)
{
    counter_add(&c->worker->stats.connections_evicted, 1);
    if (c->state == CLIENT_EXCHANGE)
        c->protocol->cut(c, CAUSE_CLIENT_STALLED);
    else
        client_close(c);
}

void clients_free_closed(struct worker *w)
{
    for (struct client *c; (c = TAILQ_FIRST(&w->downstream->closed));) {
        TAILQ_REMOVE(&w->downstream->closed, c, link);
        MAGIC_WIPE(c);
        free_list_put(&w->downstream->free_clients, c);
    }
}
