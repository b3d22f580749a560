/* worker_internal.h - the worker as the files of proxy/ see it. Nobody outside of proxy/ includes this. */
#ifndef WEIR_PROXY_WORKER_INTERNAL_H
#define WEIR_PROXY_WORKER_INTERNAL_H

#include <event2/event_struct.h>
#include <pthread.h>

#include "base/deadline.h"
#include "base/magic.h"
#include "base/timer_heap.h"
#include "net/iobuf.h"
#include "net/poller.h"
#include "policy/rule_choice.h"
#include "proxy/handoff.h"
#include "proxy/worker.h"

struct client;
struct exchange;
struct link;
struct pool;
struct server;
struct generation;

enum { WORKER_TEXT_SIZE = IOBUF_LARGE };

/* When a fault was last logged, and how often it happened without a line since. */
struct log_throttle {
    uint64_t at_us, unsaid;
};

struct worker {
    uint32_t magic;
    unsigned number;
    struct worker_shared *shared;
    struct policy *policy; /* of `now`: what new connections and heads are judged by */
    struct generation *now, *coming;
    TAILQ_HEAD(retired, generation) retired; /* replaced by a reload, still used by exchanges */
    struct event_base *base;
    struct poller client_poller, link_poller; /* of client connections; of upstream connections */
    pthread_t thread;
    bool stopping; /* set in the worker's own thread */
    uint64_t turn; /* of the loop, counted */

    struct listener *listeners;
    unsigned listener_count;
    struct handoff handoff;
    bool crowded; /* every place is taken, and connections wait in the kernel */

    unsigned silent_count; /* of `silent` */
    TAILQ_HEAD(client_list, client) clients,
        idle,      /* in a request or its head; between requests, longest idle first */
        silent,    /* accepted, and nothing was received yet: oldest first */
        heads,     /* part of a head, or of what comes before it, was received: longest first */
        lingering; /* the answer was sent, the rest of the content is dropped: longest first */
    TAILQ_HEAD(closed, client) closed; /* closed in this turn */
    TAILQ_HEAD(closed_links, link) closed_links;
    TAILQ_HEAD(unused_servers, server) unused_servers;
    struct exchange *free_exchanges;
    TAILQ_HEAD(decided_list, exchange) decided; /* by the limits, and not acted on yet; first come first */
    uint64_t decided_turn;                      /* the iteration in which a decision came last */
    unsigned decided_count;                     /* decisions in it */
    struct event act;                           /* active while there are some */
    struct client *free_clients;

    struct quota_client *quotas;
    struct iobuf_pool buffers;
    struct deadlines deadlines;
    struct timer_heap holds; /* of exchanges, see hold.h */
    struct {
        struct deadline_queue head, content, idle, write, linger, tunnel; /* of clients */
        struct deadline_queue exchange;                                   /* of exchanges */
        struct deadline_queue connect, response, pooled, probe;           /* of links */
    } queue;

    /* One of each serves all connections: what must be kept after a callback is copied into a buffer. */
    char receive[IOBUF_READ_MAX];
    char send[WORKER_TEXT_SIZE];
    struct route_room route;
    struct request_head request;
    struct response_head response;

    uint64_t random[4]; /* xoshiro256** */
    char id_start[16];  /* what this worker's request ids begin with */
    uint64_t id_count;  /* of those it has made, from a random number on */
    uint64_t id_key;
    int64_t date_second;
    char date[29]; /* IMF-fixdate of date_second */

    struct worker_stats stats;
    struct limiter_stats limiter_stats;
    struct log_throttle log_throttle[CAUSE_COUNT];
    _Atomic bool redis_ready, redis_away, upstreams_ready;
    _Atomic unsigned redis_breaker; /* enum redis_breaker */

    int wake_fd; /* eventfd: `stop` was set, `reload` given, or a endpoint set has changed */
    struct event wake;
    _Atomic bool stop;
    _Atomic(struct endpoint_set *) reload;          /* held; taken by the worker */
    _Atomic(const struct endpoint_set *) judged_by; /* `now`'s */
    struct deadline shutdown, coming_deadline, first_wait;
    struct deadline_queue shutdown_queue, coming_queue, first_queue;
};

enum { WORKER_MAGIC = 0x574f524b };

/* The Date field's value now, made once a second. */
struct slice worker_date(struct worker *worker);
uint64_t worker_random(struct worker *worker);
/* Writes a new request id, 32 hexadecimal digits, and returns their number. */
size_t worker_request_id(struct worker *worker, char *id);

/* The worker's share of size_limits.connections; 0: any number. */
unsigned worker_connections_max(const struct worker *worker);
/* The same of the worker with this number, by `worker`'s policy. */
unsigned worker_share_of(const struct worker *worker, unsigned number);

/* Counts a connection for its peer's address; `*counted`: false where peers like this are not (trusted proxies, unix sockets).
 * False: the address has too many, which is counted as well. */
MUST_CHECK bool worker_count_peer(struct worker *worker, const struct address *peer, bool *counted);
/* A client connection has closed: the listeners may go on, a stopping worker may end. `peer` is NULL where it
 * was not counted. */
void worker_client_closed(struct worker *worker, const struct address *peer);

#endif
