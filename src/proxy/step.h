/* step.h - what the steps of an exchange share: results, events, and how they change the exchange.
 *
 * Only exchange_wake() in exchange.c and dry_run.c call steps. A step calls nothing of exchange.c,
 * exchange_events.c or another step: it changes the exchange and returns. */
#ifndef WEIR_PROXY_STEP_H
#define WEIR_PROXY_STEP_H

#include <assert.h>

#include "base/log.h"
#include "proxy/exchange_state.h"
#include "proxy/relay.h"

enum { EXCHANGE_MAGIC = 0x45584348 };

/* The result of a step. */
enum step {
    STEP_NEXT, /* the exchange has entered another phase, whose step is due */
    STEP_WAIT, /* an event will wake the exchange; each wait has a deadline */
    STEP_FAIL  /* the step has failed: exchange.failure */
};

/* What an event notes in exchange.noted, before it wakes the exchange. EVENT_ENTERED is noted by
 * exchange_enter(), so that a step finds its first call. A step gets the events that were noted
 * before it runs in exchange.events; those that it does not evaluate are void. */
enum {
    EVENT_ENTERED = 1 << 0,
    EVENT_CLIENT_READABLE = 1 << 1,  /* content of the request, its end or an error */
    EVENT_CLIENT_CUT_SHORT = 1 << 2, /* the request ended before all of its content arrived */
    EVENT_CLIENT_WRITABLE = 1 << 3,  /* pending output was sent, or some of it */
    EVENT_CLIENT_GONE = 1 << 4,      /* the connection is closed, or the request is cancelled */
    EVENT_CUT = 1 << 5,              /* the protocol ends the exchange: exchange.failure */
    EVENT_FAILED = 1 << 19,          /* it cannot begin: exchange.failure */
    EVENT_LINK_READY = 1 << 6,       /* exchange.upstream.link is connected */
    EVENT_LINK_FAILED = 1 << 7,      /* it is not: exchange.upstream.failure */
    EVENT_LINK_READABLE = 1 << 8,    /* a head, content, its end or an error */
    EVENT_LINK_WRITABLE = 1 << 9,
    EVENT_LINK_BROKEN = 1 << 10,  /* sending has failed */
    EVENT_QUOTA = 1 << 11,        /* exchange.quota has the reply */
    EVENT_DECIDED = 1 << 12,      /* exchange.decision_request has the decision */
    EVENT_HELD = 1 << 13,         /* the delay of HOLD has passed */
    EVENT_LINK_LATE = 1 << 14,    /* deadlines: of the server, */
    EVENT_CONTENT_LATE = 1 << 15, /* of the client that sends, */
    EVENT_WRITE_LATE = 1 << 16,   /* of the client that reads, */
    EVENT_TUNNEL_LATE = 1 << 17,  /* of an idle tunnel, */
    EVENT_OVERDUE = 1 << 18,      /* and of the whole exchange: exchange.overdue */
    EVENT_KEYS = 1 << 20,         /* the wait for the key of a token has ended */
    EVENT_HEALTH = 1 << 21        /* the health that a Watch shows may have changed */
};

static inline bool exchange_has(const struct exchange *x, unsigned events)
{
    return (x->events & events) != 0;
}

/* Moves to another phase. A transition that is not in the table in exchange_phase.c is a bug and
 * aborts. */
extern const uint16_t exchange_next_phases[];
void exchange_log_transition(const struct exchange *x, enum phase next);

static inline void exchange_enter(struct exchange *x, enum phase next)
{
    assert(exchange_next_phases[x->phase] >> next & 1);
    if (log_threshold >= LEVEL_DEBUG)
        exchange_log_transition(x, next);
    x->phase = next;
    x->noted |= EVENT_ENTERED;
}

static inline enum step step_enter(struct exchange *x, enum phase next)
{
    exchange_enter(x, next);
    return STEP_NEXT;
}

/* The step fails. Before the first byte of a response, weir sends its own. After it, the client's
 * message must not look complete. `why` is the detail of the cause (static text), or NULL. */
static inline enum step step_fail(struct exchange *x, enum cause cause, const char *why)
{
    x->failure.cause = cause;
    x->failure.why = why;
    return STEP_FAIL;
}

/* weir responds itself with `status`. */
static inline enum step step_reply_with(struct exchange *x, uint16_t status)
{
    x->record.status = status;
    return step_enter(x, PHASE_REPLY);
}

/* The exchange ends; `how` is for the client. */
static inline enum step step_end(struct exchange *x, enum downstream_end how)
{
    x->end = how;
    return step_enter(x, PHASE_DONE);
}

/* The downstream has accepted the whole response and may still buffer some of it. The
 * request continues while the server reads it: a server may respond before it has read the
 * content (RFC 9112 section 9.3). */
static inline bool exchange_is_answered(const struct exchange *x)
{
    return x->response.progress == MESSAGE_END;
}

/* The final response is being sent to the client, or was. */
static inline bool exchange_is_answering(const struct exchange *x)
{
    return x->response.progress != MESSAGE_HEAD;
}

/* How an exchange ends whose response was sent completely. If the request failed after the
 * server's response, the rest of it is refused. */
static inline enum downstream_end exchange_end_of_answer(const struct exchange *x)
{
    return exchange_is_answered(x) && x->record.cause != CAUSE_NONE ? DOWNSTREAM_REFUSED
                                                                    : DOWNSTREAM_COMPLETE;
}

/* The response of an answered exchange is sent, and no more of the request goes to the server. */
static inline bool exchange_is_over(const struct exchange *x)
{
    bool goes_on =
        x->upstream.link && !x->upstream.broken &&
        (x->request.progress != MESSAGE_END || relay_has_kept(x) || x->upstream.link->pending);

    return !goes_on && !x->downstream->pending;
}

/* Frees what is kept of the request for a retry, but not content that the server does not have. */
static inline void exchange_forget_request(struct exchange *x)
{
    iobuf_put(&x->worker->buffers, &x->request.head);
    if (!relay_has_kept(x))
        iobuf_put(&x->worker->buffers, &x->request.kept);
}

/* The client has not sent all of its content, and the server has taken what it sent. A server that
 * does not respond then, or closes, has not failed. */
static inline bool exchange_owes_content(const struct exchange *x)
{
    return x->request.progress != MESSAGE_END && !x->request.blocked_since_us;
}

/* Count a failure of the server in use: a cause of FAULT_SERVER, or a response that counts as one.
 * While the client owes content, the failure is in metrics, but ejects no server. */
void exchange_note_error(const struct exchange *x, enum cause cause);
void exchange_note_failure(const struct exchange *x, const char *why);

/* Logs a failure with the request's id, client and server. */
void exchange_log(const struct exchange *x, enum cause cause, const char *why);

/* Runs steps until the exchange waits or has ended: only for exchange_events.c. */
void exchange_wake(struct exchange *x);

/* Makes the exchange that exchange_begin() wakes. NULL: no memory. */
struct exchange *exchange_prepare(struct downstream *downstream, struct request_head *head,
                                  const struct framing *framing);

/* exchange_watch.c: sets the client's and the server's deadline; only this function sets them in
 * RELAY and REPLY. Called after each event after which the exchange waits. */
void exchange_watch(struct exchange *x, bool client_moved, bool link_moved);

/* ---- the steps ------------------------------------------------------------------------------- */

enum step step_route(struct exchange *x);
enum step step_keys(struct exchange *x);
enum step step_quota(struct exchange *x);
enum step step_content(struct exchange *x);
enum step step_limit(struct exchange *x);
enum step step_hold(struct exchange *x);
enum step step_connect(struct exchange *x);
enum step step_relay(struct exchange *x);
enum step step_tunnel(struct exchange *x);
enum step step_service(struct exchange *x);
enum step step_reply(struct exchange *x);

/* The exchange no longer waits in KEYS, if it does. */
void keys_end(struct exchange *x);

/* HOLD ends by an event of every phase. Before the delay has passed, sets x->hold.left_early. */
void hold_end(struct exchange *x);

#endif
