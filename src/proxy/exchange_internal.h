/* exchange_internal.h - what the files of an exchange's life, exchange.c, response_relay.c and exchange_end.c, share. Nobody else includes it. */
#ifndef WEIR_PROXY_EXCHANGE_INTERNAL_H
#define WEIR_PROXY_EXCHANGE_INTERNAL_H

#include "proxy/exchange.h"
#include "proxy/retry.h"

enum { EXCHANGE_MAGIC = 0x45584348 };

/* Reads the next head of an answer and acts on it / moves a piece of the answer's content. Either may end the exchange. */
void response_read_head(struct exchange *x);
void response_relay(struct exchange *x);
/* The server sends something behind its answer, or has ended, while the request goes on. May end the exchange. */
void response_after(struct exchange *x);

struct relay_io exchange_io(struct exchange *x);

/* The client waits for a 100 before it sends its content: until then it is the server that is awaited. */
bool exchange_awaits_continue(const struct exchange *x);

/* Sets both deadlines from what is awaited now; called when an event was dealt with and the exchange goes on. */
void exchange_watch(struct exchange *x, bool client_moved, bool link_moved);

/* The server has closed the connection before an answer came: another try where that is harmless, else a failure. */
void exchange_link_died(struct exchange *x);

/* Sends the request again if retry_may() allows it after this failure; `otherwise` is the failure if no server can be
 * reached then (CAUSE_NONE: the failure to connect is). False: nothing was done. May end the exchange. */
bool exchange_try_again(struct exchange *x, enum retry_cause why, enum cause otherwise);

/* The ways out. Before any byte of an answer a failure is answered; after it the client's message must not look whole. */
void exchange_fail(struct exchange *x, enum cause cause, const char *why);

/* Sends weir's own answer; `why` in more words than the cause has, or NULL. May end the exchange. */
void exchange_reply(struct exchange *x, uint16_t status, const char *why);

/* The server's whole answer was taken by the client's stream, which may hold some of it. The request goes on for as long as the
 * server reads it (RFC 9112 section 9.3: a server may answer before it has read the content). */
static inline bool exchange_is_answered(const struct exchange *x)
{
    return x->answer_started && x->response.ended;
}

/* Ends an exchange that is answered, once the client has the answer and nothing more of the request goes to the server. False:
 * it goes on. */
bool exchange_end_if_done(struct exchange *x);

/* Logs what happened, and to whom. */
void exchange_log(const struct exchange *x, enum cause cause, const char *why);

void exchange_finish(struct exchange *x, enum client_after after);
enum client_after exchange_after_answer(const struct exchange *x);

#endif
