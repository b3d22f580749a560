/* exchange.h - one request and its response: the calls of a client's protocol, which implements
 * struct downstream (downstream.h).
 *
 * This directory owns the life of a request, from its header to its access log line. It has no
 * sockets of clients and decides no limits. In reading order:
 *
 *   exchange.h, downstream.h      the interface to the client's protocol, in both directions
 *   exchange.c                    the life of a request: the driver, failures, the end
 *   exchange_events.c             calls and callbacks from outside: they note and wake
 *   exchange_state.h, step.h      the data of an exchange; what its steps share
 *   cause.h, retry.h              the causes of failures, in one table; what is sent again
 *   step_route.c, _quota.c, _limit.c    to the decision; route.h, decision_listener.h
 *   step_hold.c, _connect.c       a queue; a link to a server
 *   step_relay.c, relay_halves.h  both directions, on relay.h; exchange_watch.c sets deadlines
 *   step_tunnel.c, step_reply.c   after 101; weir's own responses: reply.h, rejection.h
 *   dry_run.h                     the steps up to the server, for weir explain
 *   access_log.h, top_clients.h, stats.h    what remains of a request
 *   worker_state.h, generation.h  what exchanges use of their worker; its state for one policy */
#ifndef WEIR_PROXY_EXCHANGE_H
#define WEIR_PROXY_EXCHANGE_H

#include "proxy/cause.h"
#include "proxy/downstream.h"

/* ---- called by the client's protocol; see downstream.h. Each may end the exchange. ----------- */

/* Starts an exchange for a complete request header with valid framing; for a protocol other than
 * HTTP/1.1, FRAMING_CHUNKED means content of unknown length. The header's bytes need to be valid
 * only during the call. Returns false if there is no memory; then nothing was started. */
MUST_CHECK bool exchange_begin(struct downstream *downstream, struct request_head *head,
                               const struct framing *framing);

/* Responds to a request whose header was refused or timed out. `why` is the detail of the cause
 * (static text, or NULL). `line` is for the access log and is used during the call only. Returns
 * false if there is no memory; then nothing was started. */
MUST_CHECK bool exchange_refuse(struct downstream *downstream, enum cause cause, uint16_t status,
                                const char *why, const struct request_line *line);

/* Content of the request, its end or an error can be read with read_body(). Only while want_body()
 * is in effect and the content has not ended. */
void exchange_body_ready(struct exchange *x);
/* The client has ended its request before all of its content arrived. Only while want_body() is not
 * in effect; later, read_body() reports it. */
void exchange_body_cut_short(struct exchange *x);
/* Output that was pending was sent, or some of it. */
void exchange_writable(struct exchange *x);
/* The client has closed the connection or cancelled the request. */
void exchange_client_gone(struct exchange *x);

/* Ends the exchange in any phase; the client gets no complete response. With CAUSE_SHUTDOWN, a
 * client that has received no part of one gets 503 first: the next call ends the exchange. */
void exchange_cut(struct exchange *x, enum cause cause);

/* Returns whether the client still waits for 100 (Continue) before it sends its content. */
bool exchange_awaits_continue(const struct exchange *x);
/* Returns the memory of the buffers of the exchange and its link, in bytes. */
size_t exchange_memory(const struct exchange *x);
/* Returns for how long neither the client nor the server has moved data that weir waits for, in
 * microseconds. */
uint64_t exchange_still_us(const struct exchange *x, uint64_t now_us);

/* ---- called by worker/ ----------------------------------------------------------------------- */

/* Initialises what the exchanges of a worker share: deadlines, held requests, and worker->decided,
 * exchanges with decisions that were left to a later loop iteration. */
void exchanges_init(struct worker *worker);
/* Call when all exchanges have ended, also if exchanges_init() was not called. */
void exchanges_free(struct worker *worker);
/* Frees the memory of ended exchanges that was not needed since the last call. */
void exchanges_trim(struct worker *worker);
/* Fetches of keys may have ended: exchanges that wait for them go on. */
void exchanges_keys_changed(struct worker *worker);

#endif
