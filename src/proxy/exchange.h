/* exchange.h - one request and its answer. See exchange.c for its life. */
#ifndef WEIR_PROXY_EXCHANGE_H
#define WEIR_PROXY_EXCHANGE_H

#include "base/timer_heap.h"
#include "proxy/client.h"
#include "proxy/relay.h"
#include "proxy/upstream.h"
#include "quota/quotas.h"

enum phase {
    PHASE_ROUTE,
    PHASE_LIMIT,
    PHASE_HOLD,
    PHASE_CONNECT,
    PHASE_RELAY,
    PHASE_TUNNEL,
    PHASE_REPLY,
    PHASE_DONE
};

enum { REQUEST_ID_MAX = 128 };

struct exchange {
    uint32_t magic;
    enum phase phase;
    struct worker *worker;
    struct client *client;
    struct generation *generation; /* it began with this policy and ends with it */
    struct policy *policy;         /* the generation's */
    const struct rule *rule;       /* NULL: refused before one was matched */
    struct slice path; /* to forward in place of the target's, while the head is there; empty: as it came */
    struct exchange *next_free;

    /* the request, as far as it is needed after its head has gone */
    enum method method;
    uint8_t minor;
    bool keep_alive, expects_continue, idempotent;
    bool end_unknown;            /* it could not be understood, so nobody knows where the next one begins */
    bool continued;              /* the client was told to send its content */
    size_t upgrade_size;         /* of upgrade */
    struct message_body request; /* client -> upstream */
    struct iobuf *
        head; /* as it goes upstream; kept until the first byte of the answer, for a retry. While the quota is
                            waited for: as it came */

    /* the upstream's side */
    struct link *link;
    struct upstream_tries tries;
    bool sent_again;              /* on a fresh connection, after the server had closed a kept one */
    unsigned retries;             /* times it was sent to another server */
    bool link_broken;             /* it took no more of the request; there may be an answer all the same */
    bool link_keep_alive;         /* the server will read another request */
    bool answer_started;          /* bytes of the final answer have gone to the client */
    unsigned interim;             /* 1xx answers passed on */
    struct message_body response; /* upstream -> client */

    /* what came of it */
    bool quota_told; /* quota.outcome is there, of the identity's source quota_source */
    unsigned quota_source;
    bool decided;    /* by the limits */
    bool acts_later; /* the limits have decided; it is in worker->decided */
    TAILQ_ENTRY(exchange) decided_link;
    uint64_t decision_us; /* from the start until then; 0: at once */
    struct timer hold;
    uint64_t held_since_us, held_us; /* how long a queue has held it; since 0: none did */
    bool left_queue;                 /* before it was its turn */
    enum cause cause;
    const char *why;       /* more than the cause says (static text), or NULL */
    uint16_t status;       /* answered; 0: none */
    bool close;            /* the client was told that the connection closes */
    struct deadline whole; /* timeouts.exchange */
    bool overdue;          /* it has passed while the limits were asked */
    uint64_t reply_bytes;  /* content of weir's own answer */
    uint64_t started_us, sent_us, response_us;
    uint64_t content_since_us; /* from when on the client could send its content; 0: not yet */
    uint64_t blocked_since_us,
        blocked_us; /* the server did not take content: the client is not to blame for that time */

    struct iobuf *log;  /* the access line's parts that come from the request's head; NULL: no access log */
    uint32_t log_split; /* where its second part begins */

    size_t identity_size, id_size;
    bool has_client_ip; /* client_ip is set */
    /* From here on nothing is cleared when an exchange begins. */
    struct decision_request decision_request; /* the limits' decision */
    struct quota_wait quota;
    struct ip client_ip; /* seen through trusted proxies */
    char identity[IDENTITY_TEXT_MAX];
    char request_id[REQUEST_ID_MAX];
    char upgrade[64]; /* the protocols offered to the server */
};

/* Begins the exchange of a whole, well-framed head; `behind` is handled by the caller. The head's bytes are
 * needed during the call only. The exchange may end inside the call. */
void exchange_begin(struct client *client, struct request_head *head, const struct framing *framing);

/* The exchanges whose decisions came in when an iteration had lasted too long to act on them. */
void exchanges_init(struct worker *worker);

/* Answers a request whose head was refused, or did not come in time: `why` in more words than the cause has
 * (static text; may be NULL); `line` is for the log, and may lie in client->stream.in, which is emptied. The connection
 * closes. May end inside the call. */
void exchange_refuse(struct client *client, enum cause cause, uint16_t status, const char *why,
                     const struct request_line *line);

/* Events, as client.c and upstream.c see them. Each may end the exchange. */
void exchange_client_readable(struct exchange *x);
void exchange_client_writable(struct exchange *x);
void exchange_client_left(struct exchange *x);
void exchange_client_timed_out(struct exchange *x, enum cause cause);
void exchange_release(struct exchange *x);
void exchange_connected(struct exchange *x);
void exchange_connect_failed(struct exchange *x, enum cause cause);
void exchange_link_readable(struct exchange *x);
void exchange_link_writable(struct exchange *x);
void exchange_link_timed_out(struct exchange *x);
void exchange_overdue(struct deadline *whole);

/* Ends it now, whatever its phase; the client's connection is cut. For shutdown. */
void exchange_cut(struct exchange *x, enum cause cause);

/* The tunnel that it became has ended. */
void exchange_tunnel_ended(struct exchange *x);

void exchanges_free(struct worker *worker);

#endif
