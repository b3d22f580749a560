/* exchange_state.h - the data of an exchange, for the files of this directory. exchange.h has its
 * interface, exchange.c its life. */
#ifndef WEIR_PROXY_EXCHANGE_STATE_H
#define WEIR_PROXY_EXCHANGE_STATE_H

#include "base/timer_heap.h"
#include "http/grpc_status.h"
#include "proxy/downstream.h"
#include "proxy/generation.h"
#include "proxy/send_rate.h"
#include "quota/quotas.h"
#include "upstream/upstream.h"

enum phase {
    PHASE_ROUTE,
    PHASE_KEYS,
    PHASE_QUOTA,
    PHASE_CONTENT,
    PHASE_LIMIT,
    PHASE_HOLD,
    PHASE_CONNECT,
    PHASE_RELAY,
    PHASE_TUNNEL,
    PHASE_REPLY,
    PHASE_DONE,
    PHASE_SERVICE /* a request on a listener of rate_limit_service, instead of ROUTE */
};

/* How much of a message weir has read from its sender and passed on. A request begins with
 * MESSAGE_CONTENT, or MESSAGE_END without content. In a tunnel, a message is one direction. */
enum message_progress {
    MESSAGE_HEAD,    /* response: at most interim (1xx) responses */
    MESSAGE_CONTENT, /* response: the final response is being sent to the client */
    MESSAGE_END      /* all content was read; the recipient's side may still buffer some of it */
};

/* Whether the client waits for 100 (Continue) before it sends its content. */
enum continue_state { CONTINUE_UNEXPECTED, CONTINUE_EXPECTED, CONTINUE_SENT };

/* Whether the request's content was read before its decision. */
enum inspection {
    INSPECTION_NONE,
    INSPECTION_DONE,   /* CONTENT has read it into request.kept */
    INSPECTION_COUNTED /* and it is in weir_content_inspected_total */
};

enum { REQUEST_ID_MAX = 128 };

struct service_request;
struct waiting_request;

/* One request. Its parts belong to the steps named there: other steps read them. */
struct exchange {
    uint32_t magic;
    enum phase phase;
    /* Events (step.h): noted since the last step began; those of this step. */
    unsigned noted, events;
    bool running; /* exchange_wake() is active */
    /* Why a step has failed, for exchange_wake() alone; record.cause is that of the response. */
    struct {
        enum cause cause;
        const char *why; /* detail (static text), or NULL */
    } failure;
    enum downstream_end end; /* in DONE: how it ends for the client */
    struct worker *worker;
    struct downstream *downstream;
    struct generation *generation; /* configuration at its start, used until its end */
    struct policy *policy;         /* the generation's policy */
    bool without_limiter;          /* counted in generation->without_limiter */
    struct deadline whole;         /* timeouts.exchange */
    struct timer call;             /* the deadline of a gRPC call */
    bool grpc;                     /* a gRPC call, see grpc.h */
    enum cause overdue; /* a deadline of the whole exchange has expired; CAUSE_NONE: none */
    struct deadline client_deadline; /* the client must send content, or read */
    struct send_rate send;           /* of send_deadline.c */
    struct {                         /* KEYS */
        enum {
            KEYS_NOT_AWAITED,
            KEYS_AWAITED, /* in worker->keys_awaited */
            KEYS_OVERDUE  /* the time to wait has passed */
        } wait;
        bool counts;     /* it is one of the waiting requests of `group` */
        struct ip group; /* the client's address, grouped as for connections_per_ip */
        TAILQ_ENTRY(exchange) link;
    } keys;

    uint32_t requests_entry; /* client_requests.h: counts the request; 0: not counted */

    struct {                     /* ROUTE, QUOTA */
        const struct rule *rule; /* NULL: refused before a rule matched */
        struct slice path;       /* to forward, valid with the header; empty: as received */
        unsigned source;         /* the identity source that the rule was selected with */
    } route;

    struct { /* LIMIT */
        enum {
            LIMITS_UNDECIDED,
            LIMITS_QUEUED, /* the decision is known; it waits in worker->decided */
            LIMITS_DECIDED /* the decision was applied */
        } progress;
        TAILQ_ENTRY(exchange) queued_link;
        uint32_t
            granted_at[LIMITS_PER_RULE_MAX]; /* positions in request.head; 0: none (granted.h) */
        int64_t stated_cost; /* by a request header; 0: that of the rule or of its limits applies */
        uint64_t decision_us; /* from the start to the decision; 0: decided at once */
    } limits;

    struct {                        /* response_cost.c */
        struct usage_reader *usage; /* the content of the response is read; NULL: it is not */
        int64_t stated_by_rule;     /* by cost.response_header of the rule; -1: not */
        size_t usage_added;         /* bytes that ask for the usage (added_usage.h); 0: none */
        struct stream_usage_filter *filter; /* and removes it from the response; NULL: not */
    } cost;

    struct { /* HOLD */
        struct timer timer;
        uint64_t since_us, held_us; /* start and duration; start 0: not held */
        bool left_early;            /* ended before its time */
    } hold;

    struct {                     /* CONNECT, retry.c */
        struct link_owner owner; /* of link */
        struct link *link;
        struct upstream_tries tries;
        bool sent_again;            /* on a new connection, after the server closed a reused one */
        bool closed_new;            /* a server closed a new connection: LINK_FAILED_CLOSED */
        bool dialed_again;          /* all servers, because of that */
        unsigned retries;           /* retries on another server */
        enum link_failure failure;  /* with EVENT_LINK_FAILED */
        enum retry_cause retry_why; /* of the next or current try; RETRY_NONE: the first */
        enum cause without_server;  /* of the failed try: the cause if no other server can be used;
                                      CAUSE_NONE: that of the next try */
        uint64_t sent_us;           /* when the request was sent; 0: not yet */
        bool broken;                /* sending the request failed; a response may still arrive */
        bool extended; /* its deadline, once, because input was unread; nothing has moved since */
    } upstream;

    struct { /* relay_request.c */
        enum method method;
        enum framing_kind kind; /* FRAMING_CHUNKED: the length is unknown */
        enum message_progress progress;
        enum continue_state continuation;
        bool trailers; /* trailers were read; they are not kept */
        bool extended; /* the client's deadline, as upstream.extended */
        enum inspection inspection;
        uint64_t max;        /* maximum content length in bytes; 0: no limit */
        uint64_t bytes;      /* content bytes read so far, and those of cost.usage_added */
        struct iobuf *head;  /* as forwarded, kept for a retry until the response starts */
        struct iobuf *kept;  /* all content, as long as `head` is kept (relay.h); NULL: none */
        size_t forwarded;    /* bytes of `kept` that the server has */
        struct iobuf *ahead; /* CONTENT: the piece after `kept`, which no server has; NULL: none */
        /* body_min_rate is measured from here. since_us is 0 until the client can send content.
         * The time in which the server does not read is added to it. */
        struct rate_mark mark;
        uint64_t blocked_since_us; /* the server has not read content since; 0: it reads */
        uint64_t never_indexed;    /* of `head`, see struct fields */
        size_t upgrade_size;       /* of `upgrade` */
    } request;

    struct { /* relay_response.c */
        enum message_progress progress;
        unsigned interim; /* number of 1xx responses received */
        uint64_t bytes;   /* content bytes read so far, without those that weir removes */
    } response;

    struct { /* for logs and metrics, and weir's own response */
        enum cause cause;
        const char *why;      /* detail of the cause (static text), or NULL */
        uint16_t status;      /* status sent to the client; 0: none */
        int grpc_status;      /* of the response to a gRPC call, or GRPC_STATUS_NONE */
        uint64_t reply_bytes; /* content length of weir's own response */
        uint64_t started_us;
        /* From sending the request: to the response header, to the end of its content; 0: none. */
        uint64_t response_us, last_us;
        const struct upstream_server *server; /* that the request was last sent to; NULL: none */
        struct iobuf *log;  /* access log line: the parts from the request header; NULL: no line */
        uint32_t log_split; /* offset of its second part */
    } record;

    struct service_request *service; /* of a listener of rate_limit_service; NULL: no such one */
    struct waiting_request *waiting; /* in KEYS and QUOTA: the header as received, and more */
    size_t identity_size, id_size;
    bool has_client_ip; /* client_ip is set */
    /* exchange_new() does not clear the members from here on. */
    struct decision_request decision_request; /* the limits' decision */
    /* By position in rule->limits: the units that an admitted request is charged now. */
    int64_t charged[LIMITS_PER_RULE_MAX];
    /* The same for limits with costs of their own: the units to charge before the response, and
     * then those that were; the cost that a response header states, -1: none. */
    int64_t reserves[LIMITS_PER_RULE_MAX], stated[LIMITS_PER_RULE_MAX];
    struct quota_wait quota;
    struct ip client_ip; /* the client's, also behind trusted proxies */
    char upgrade[64];    /* protocols offered to the server */
    char identity[IDENTITY_TEXT_MAX];
    char request_id[REQUEST_ID_MAX];
};

/* Returns the bytes of content that the client has sent. */
static inline uint64_t exchange_received(const struct exchange *x)
{
    return x->request.bytes - x->cost.usage_added;
}

#endif
