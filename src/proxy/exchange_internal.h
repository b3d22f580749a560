/* exchange_internal.h - declarations shared by the files that implement an exchange. */
#ifndef WEIR_PROXY_EXCHANGE_INTERNAL_H
#define WEIR_PROXY_EXCHANGE_INTERNAL_H

#include <assert.h>

#include "base/log.h"
#include "proxy/exchange.h"
#include "proxy/exchange_state.h"
#include "proxy/relay.h"
#include "proxy/retry.h"

enum { EXCHANGE_MAGIC = 0x45584348 };

/* The phases that may follow each phase, as a bit mask. */
extern const uint16_t exchange_next_phases[];
/* Logs the transition at level debug, and ends HOLD. */
void exchange_phase_ends(struct exchange *x, enum phase next);

/* Moves to another phase. A transition that is not in the table is a bug and aborts. */
static inline void exchange_enter(struct exchange *x, enum phase next)
{
    assert(exchange_next_phases[x->phase] >> next & 1);
    if (x->phase == PHASE_HOLD || log_threshold >= LEVEL_DEBUG)
        exchange_phase_ends(x, next);
    x->phase = next;
}

/* ROUTE, QUOTA and LIMIT, for a head whose bytes are valid during the call. May end the
 * exchange. */
void exchange_route(struct exchange *x, struct request_head *head, const struct framing *framing);
/* Callback of the limiter: acts on the decision now or in a later loop iteration. */
void exchange_decided(struct decision_request *decision_request);
void decisions_init(struct worker *worker);

/* Events of the link. Each may end the exchange. */
void exchange_connected(struct exchange *x, struct link *link);
void exchange_connect_failed(struct exchange *x, enum link_failure failure);
void exchange_link_writable(struct exchange *x);
void exchange_link_broke(struct exchange *x);

/* ---- QUOTA: exchange_quota.c ----------------------------------------------------------------- */

enum quota_known {
    QUOTA_KNOWN,         /* `identity` and `client_limits` are final */
    QUOTA_PENDING,       /* exchange_quota_known() runs unless quota_wait_cancel() is called */
    QUOTA_CLIENT_DENIED, /* denied by quotas.unknown_client: deny */
    QUOTA_IDENTITY_BAD,  /* the identity source after an unknown id is malformed: `why` */
    QUOTA_NO_MEMORY
};

struct quota_result {
    enum quota_known known;
    const struct client_limits *client_limits; /* &found, or NULL: the database has no row */
    struct client_limits found;
    const char *why;
};

/* Looks up the quota for `identity`, the result of identity_of(). With
 * identity.known_clients_only, an id without a row is replaced by the identity of the next
 * source. If the result is QUOTA_PENDING, the request's head, `framing`, `identity` and the
 * exchange's path were copied. */
void quota_wait_begin(struct exchange *x, const struct request_head *head,
                      const struct framing *framing, struct identity *identity,
                      struct quota_result *result);
/* Ends the wait, if any. */
void quota_wait_cancel(struct exchange *x);

/* exchange_route.c: continues after QUOTA. May end the exchange. */
void exchange_quota_known(struct exchange *x, struct request_head *head,
                          const struct framing *framing, struct identity *identity,
                          const struct quota_result *result);

/* ---- HOLD: exchange_hold.c ------------------------------------------------------------------- */

/* Called by exchanges_init() and exchanges_free(). */
void holds_init(struct worker *worker);
void holds_clear(struct worker *worker);

/* Enters HOLD; exchange_release() runs after `delay_us` microseconds. False: no memory. */
MUST_CHECK bool hold_begin(struct exchange *x, uint64_t delay_us);

/* Called by exchange_enter() when HOLD ends. Before the delay has passed, sets x->left_queue. */
void hold_end(struct exchange *x);

/* The delay of HOLD has passed. May end the exchange. */
void exchange_release(struct exchange *x);

/* ---- CONNECT and RELAY ----------------------------------------------------------------------- */

/* CONNECT: takes an upstream connection and sends the request. May end the exchange. */
void exchange_connect(struct exchange *x);

/* RELAY: sends the request header and the content received so far. May end the exchange. */
void request_send(struct exchange *x);
/* Relays one piece of the request content. May end the exchange. */
void request_relay(struct exchange *x);
/* Discards request content that the server does not read. May end the exchange. */
void request_drop(struct exchange *x);

/* Reads and processes the next response header. May end the exchange. */
void response_read_head(struct exchange *x);
/* Relays one piece of the response content. May end the exchange. */
void response_relay(struct exchange *x);

/* ---- TUNNEL: exchange_tunnel.c --------------------------------------------------------------- */

/* Returns the protocols that a request offers to switch to, or an empty slice if weir does not
 * forward the upgrade. The request must be HTTP/1.1, have no content, and name Upgrade in
 * Connection. Protocols that carry HTTP (h2c, HTTP/2.0, TLS/1.0) are never forwarded: weir
 * could not limit their requests. */
struct slice tunnel_protocol(const struct request_head *head, const struct framing *framing);

/* Starts the tunnel after the 101 was sent to the client. This function and those below may end the
 * exchange. */
void tunnel_begin(struct exchange *x);

void tunnel_client_readable(struct exchange *x);
void tunnel_client_writable(struct exchange *x);
void tunnel_link_readable(struct exchange *x);
void tunnel_link_writable(struct exchange *x);

/* The exchange's tunnel has ended. Ends the exchange. */
void exchange_tunnel_ended(struct exchange *x);

/* ---- all phases ------------------------------------------------------------------------------ */

/* Returns the parts of the request that determine its identity. `*peer` is room for the address. */
struct identity_input exchange_identity_input(const struct exchange *x,
                                              const struct request_head *head,
                                              struct address *peer);

/* The client waits for 100 (Continue) before it sends its content, so weir waits for the
 * server. */
bool exchange_awaits_continue(const struct exchange *x);

/* Sets the client's and the server's deadline; only this function sets them in RELAY and REPLY.
 * Called after each event that does not end the exchange. */
void exchange_watch(struct exchange *x, bool client_moved, bool link_moved);

/* The server closed the connection before its response: retries if that is safe, else fails. */
void exchange_link_died(struct exchange *x);

/* Retries the request if retry_may() allows it after failure `why`. If no connection is
 * available for the retry, the exchange fails with `otherwise` (CAUSE_NONE: with the cause from
 * upstream_take()). False: no retry, nothing changed. May end the exchange. */
bool exchange_try_again(struct exchange *x, enum retry_cause why, enum cause otherwise);

/* Ends a failed exchange. Before the first byte of a response, weir sends its own. After it, the
 * client's message must not look complete. `why` is the detail of the cause, or NULL. */
void exchange_fail(struct exchange *x, enum cause cause, const char *why);

/* Sends weir's own response. `why` is the detail of the cause, or NULL. May end the exchange. */
void exchange_reply(struct exchange *x, uint16_t status, const char *why);

/* The downstream has accepted the whole response and may still buffer some of it. The
 * request continues while the server reads it: a server may respond before it has read the
 * content (RFC 9112 section 9.3). */
static inline bool exchange_is_answered(const struct exchange *x)
{
    return x->answer == ANSWER_ENDED;
}

/* Ends an answered exchange when the response is sent and no more of the request goes to the
 * server. False: the exchange continues. */
bool exchange_end_if_done(struct exchange *x);

/* Frees what is kept of the request for a retry. */
void exchange_forget_request(struct exchange *x);

/* Logs a failure with the request's id, client and server. */
void exchange_log(const struct exchange *x, enum cause cause, const char *why);

/* The only end of an exchange: releases everything, counts, logs, and calls the downstream's end().
 * `how` is for the client. */
void exchange_finish(struct exchange *x, enum downstream_end how);
/* How an exchange ends whose response was sent completely. */
enum downstream_end exchange_after_answer(const struct exchange *x);

#endif
