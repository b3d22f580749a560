#include "proxy/drain.h"

#include <stdlib.h>

#include "base/clock.h"
#include "proxy/relay.h"
#include "proxy/step.h"

struct drain {
    struct downstream downstream;
    struct client_origin origin; /* of the client that has left */
    uint16_t status;             /* that it has received; 0: none */
    uint64_t bytes;              /* of content that were sent to it */
    TAILQ_ENTRY(drain) link;
};

/* ---- the downstream -------------------------------------------------------------------------- */

static enum downstream_sent send_head(struct downstream *d, const struct response *response,
                                      const struct iovec *content, int count, bool last)
{
    (void)d, (void)response, (void)content, (void)count, (void)last;
    return DOWNSTREAM_SENT;
}

static enum downstream_sent send_interim(struct downstream *d, const struct response *response)
{
    (void)d, (void)response;
    return DOWNSTREAM_SENT;
}

static enum downstream_sent send_body(struct downstream *d, const struct content_piece *piece)
{
    (void)d, (void)piece;
    return DOWNSTREAM_SENT;
}

static bool takes(struct downstream *d)
{
    (void)d;
    return true;
}

static void want_body(struct downstream *d, bool want)
{
    (void)d, (void)want;
}

static enum body_status read_body(struct downstream *d, bool receive, struct content_piece *piece,
                                  const char **why)
{
    (void)d, (void)receive, (void)piece, (void)why;
    return BODY_AGAIN;
}

static bool consume_body(struct downstream *d, const struct content_piece *piece)
{
    (void)d, (void)piece;
    return true;
}

static bool has_input(const struct downstream *d)
{
    (void)d;
    return false;
}

static uint64_t taken(const struct downstream *d, bool exactly)
{
    (void)d, (void)exactly;
    return 0;
}

static void end(struct downstream *d, enum downstream_end how)
{
    struct drain *drain = CONTAINER_OF(d, struct drain, downstream);

    (void)how;
    TAILQ_REMOVE(&d->worker->drains, drain, link);
    atomic_fetch_sub(&d->worker->shared->drains, 1);
    free(drain);
}

const struct downstream_ops drain_ops = {.send_head = send_head,
                                         .send_interim = send_interim,
                                         .send_body = send_body,
                                         .takes = takes,
                                         .want_body = want_body,
                                         .read_body = read_body,
                                         .consume_body = consume_body,
                                         .has_input = has_input,
                                         .taken = taken,
                                         .end = end};

/* ---- begin and end --------------------------------------------------------------------------- */

/* The server has the whole request, and its response is going to state the cost. */
static bool is_worth_it(const struct exchange *x)
{
    return x->phase == PHASE_RELAY && !x->grpc && x->route.rule->drains &&
           x->decision_request.charge && x->upstream.link && !x->upstream.broken &&
           x->request.progress == MESSAGE_END && !relay_has_kept(x) && !x->request.upgrade_size &&
           !exchange_is_answered(x) && (x->cost.usage || x->response.progress == MESSAGE_HEAD);
}

/* Takes one of DRAINS_MAX places. */
static struct drain *drain_new(struct worker *w)
{
    struct drain *drain = NULL;

    if (atomic_fetch_add(&w->shared->drains, 1) < DRAINS_MAX)
        drain = calloc(1, sizeof *drain);
    if (!drain)
        atomic_fetch_sub(&w->shared->drains, 1);
    return drain;
}

bool drain_begin(struct exchange *x)
{
    struct worker *w = x->worker;
    struct downstream *left = x->downstream;
    struct drain *drain = is_worth_it(x) ? drain_new(w) : NULL;

    if (!drain)
        return false;
    uint64_t until_us = clock_cached_us() + x->route.rule->upstream->response_timeout_us;
    drain->status = x->record.status;
    drain->bytes = x->response.bytes;
    drain->origin = *left->origin;
    drain->origin.certificate = NULL; /* belongs to the connection, which is freed */
    drain->downstream = (struct downstream){
        .ops = &drain_ops, .worker = w, .origin = &drain->origin, .exchange = x};
    TAILQ_INSERT_TAIL(&w->drains, drain, link);
    if (!timer_set(&w->calls, &x->call, until_us)) {
        end(&drain->downstream, DOWNSTREAM_ABORTED);
        return false;
    }
    deadline_cancel(&x->client_deadline);
    x->downstream = &drain->downstream;
    left->exchange = NULL;
    left->ops->end(left, DOWNSTREAM_ABORTED);
    x->noted |= EVENT_CLIENT_WRITABLE; /* the server may have been paused for the client */
    return true;
}

void drain_forget_response(struct exchange *x)
{
    const struct drain *drain = CONTAINER_OF(x->downstream, struct drain, downstream);

    x->record.status = drain->status;
    x->response.bytes = drain->bytes;
}

void drains_cut(struct worker *w)
{
    for (struct drain *drain; (drain = TAILQ_FIRST(&w->drains));) {
        struct exchange *x = drain->downstream.exchange;
        x->failure.cause = CAUSE_CLIENT_GONE;
        x->noted |= EVENT_CUT;
        exchange_wake(x);
    }
}
