/* worker_state.h - a worker as its exchanges and client connections use it. worker/ runs it.
 * Only used in the worker's own thread, except the atomic members. */
#ifndef WEIR_PROXY_WORKER_STATE_H
#define WEIR_PROXY_WORKER_STATE_H

#include <event2/event_struct.h>
#include <pthread.h>

#include "base/deadline.h"
#include "base/free_list.h"
#include "base/log_throttle.h"
#include "base/magic.h"
#include "base/timer_heap.h"
#include "http2/session.h"
#include "net/iobuf.h"
#include "net/poller.h"
#include "policy/key_values.h"
#include "policy/rule_choice.h"
#include "proxy/service_state.h"
#include "proxy/top_clients.h"
#include "proxy/worker_shared.h"
#include "upstream/upstream.h"

/* The request of the exchange that is in ROUTE, QUOTA or LIMIT, as received. Its bytes are valid
 * until the exchange waits or leaves LIMIT. */
struct incoming {
    struct request_head *head;
    struct framing framing;
    struct identity identity;
    struct client_limits found;                /* from the database */
    const struct client_limits *client_limits; /* &found; NULL: the policy's */
    /* Room for what sources of the identity and keys of limits read, during one step. */
    struct content_facts content;
    struct json_values values;
    struct key_values key_values;
};

struct downstream_worker;
struct exchange;
struct generation;
struct ip_shares;

enum { WORKER_TEXT_SIZE = IOBUF_LARGE };

struct worker {
    uint32_t magic;
    unsigned number;
    struct worker_shared *shared;
    struct policy *policy; /* of `now`: used for new connections and heads */
    struct generation *now, *coming;
    TAILQ_HEAD(retired, generation) retired; /* replaced by a reload, still used by exchanges */
    struct event_base *base;
    pthread_t thread;
    bool stopping;              /* set in the worker's own thread */
    bool draining;              /* responses announce the end of their connection; likewise */
    bool cut;                   /* timeouts.shutdown has passed; likewise */
    uint64_t iteration;         /* number of the loop iteration */
    uint64_t generation_number; /* of `now` */

    struct downstream_worker *downstream; /* listeners and client connections */
    struct upstream_worker upstream;      /* connections to servers */

    struct free_list free_exchanges;            /* in the memory of `buffers` */
    TAILQ_HEAD(decided_list, exchange) decided; /* decided by the limits, not processed yet */
    TAILQ_HEAD(drain_list, drain) drains;       /* of clients that have left (drain.h) */
    struct decided_list keys_awaited;           /* exchanges in KEYS */
    unsigned keys_awaited_count;
    uint64_t decided_iteration; /* iteration of the last decision */
    unsigned decided_count;     /* number of decisions in that iteration */
    struct event act;           /* active while `decided` is not empty */

    struct service_worker service;
    struct quota_client *quotas;
    struct iobuf_pool buffers;
    struct deadlines deadlines;
    struct timer_heap holds; /* timers of held exchanges, see step_hold.c */
    struct timer_heap calls; /* deadlines of gRPC calls, see grpc.h */
    struct {
        struct deadline_queue content, write, reply, tunnel, exchange, keys;
    } queue;

    /* Shared by all connections. Data needed after a callback is copied into a buffer. */
    char receive[IOBUF_READ_MAX];
    char send[WORKER_TEXT_SIZE];
    struct route_room route;
    struct request_head request;
    struct incoming incoming;
    struct response_head response;
    struct fields trailers; /* of the piece of content that is being forwarded */

    uint64_t random[4]; /* xoshiro256** */
    char id_start[16];  /* prefix of this worker's request ids */
    uint64_t id_count;  /* counter in the ids, starting from a random number */
    uint64_t id_key;
    int64_t date_second;
    char date[29]; /* IMF-fixdate of date_second */

    struct worker_stats stats;
    struct limiter_stats limiter_stats;
    struct top_clients top_clients;
    struct ip_shares *requests_by_ip; /* requests under way, see client_requests.h */
    struct log_throttle log_throttle[CAUSE_COUNT];
    struct { /* log.sample */
        uint64_t second;
        int64_t written;   /* lines of rejections in this second */
        uint64_t left_out; /* since the last one */
    } sample;
    _Atomic bool redis_ready, redis_unreachable;
    _Atomic unsigned redis_breaker; /* enum redis_breaker */

    int wake_fd; /* eventfd: written after `stop`, `reload`, an endpoint set change or a handoff */
    struct event wake;
    _Atomic bool drain, stop;
    _Atomic uint64_t iterations;                      /* `iteration`, for other threads */
    _Atomic(struct endpoint_set *) reload;            /* held; the worker takes it over */
    _Atomic(const struct endpoint_set *) current_set; /* the endpoint set of `now` */
    uint64_t shed_in_vain_us; /* time of the last clients_shed() that has freed too little */
    struct deadline shutdown, last_requests, reload_again, coming_deadline, first_wait, trim;
    struct deadline_queue shutdown_queue, last_requests_queue, reload_again_queue, coming_queue,
        first_queue, trim_queue;
};

enum { WORKER_MAGIC = 0x574f524b };

/* Returns the value of the Date field, refreshed once per second. */
struct slice worker_date(struct worker *worker);
uint64_t worker_random(struct worker *worker);
/* Writes a new request id of 32 hexadecimal digits, and returns its length. */
size_t worker_request_id(struct worker *worker, char *id);

/* Returns the worker's share of size_limits.connections; 0: no limit. */
unsigned worker_connections_max(const struct worker *worker);
/* The same for the worker with this number, by `worker`'s policy. */
unsigned worker_share_of(const struct worker *worker, unsigned number);

#endif
