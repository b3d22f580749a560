/* upstream.h - a worker's connections (links) to the servers of one upstream. weir picks the server
 * with the fewest outstanding requests and pools idle keep-alive connections.
 *
 * This directory owns the state of servers: addresses, health, ejections, connections. It
 * contains nothing of rules or limits, and of clients only the address of a failed request. Whether
 * a request is sent again is decided in proxy/. In reading order:
 *
 *   endpoint_set.h      servers and their health, for all workers: endpoint_names.c, health.c
 *   link.h              the interface between an exchange and its use of a server
 *   upstream.h          a worker's links and pools: upstream.c
 *   connection.c        connections: TCP, TLS; idle_pool.c keeps idle ones of HTTP/1.1
 *   http1_link.c        links of HTTP/1.1: a connection each, with message_body.h
 *   http2_upstream.h    links of HTTP/2: streams that share connections
 *   servers.c           a worker's view of the endpoint set: choice of a server, retry budget
 *   ejection.c          servers that fail
 *   upstream_stats.h    counters
 *
 *   CONNECTING -> BUSY <-> POOLED -> CLOSED   closed by server, unexpected data, or idle timeout
 *   PROBING -----------------^                an ejected server accepts connections again
 *
 * A connection of HTTP/1.1 belongs to its link_owner, an exchange (CONNECTING, BUSY), to its server
 * (PROBING) or to the pool (POOLED). One of HTTP/2 belongs to its server.
 *
 * A server that refuses a connection is ejected: it gets no requests while another server is left.
 * weir probes it with a bare connection (and the TLS handshake) after 1 s, then with doubled
 * intervals up to 32 s, until a probe succeeds. A server that fails too many requests is ejected
 * for a time (ejection.c). The endpoint set defines the servers and their health check results. */
#ifndef WEIR_UPSTREAM_UPSTREAM_H
#define WEIR_UPSTREAM_UPSTREAM_H

#include "base/log_throttle.h"
#include "http2/session.h"
#include "upstream/endpoint_set.h"
#include "upstream/link.h"
#include "upstream/upstream_stats.h"

struct server;
struct pool;

/* A worker's part in this directory: what the links and servers of all its pools share. Embedded in
 * struct worker. */
struct upstream_worker {
    struct body_io io;            /* of the worker */
    struct upstream_pools *pools; /* those in use: upstream_worker_use() */
    unsigned pooled_max;          /* idle connections per server; 0: no limit */
    bool stopping;                /* nothing is pooled or probed any more: upstream_worker_stop() */
    uint64_t iteration;           /* number of the loop iteration; the worker sets it */
    struct poller poller;
    struct event wake; /* of the loop */
    struct {
        struct deadline_queue connect, response, pooled, probe, http2_wait, http2_silence;
    } queue;
    TAILQ_HEAD(closed_connections, connection) closed; /* in this loop iteration */
    struct iobuf *last_head; /* the buffer of a head read in this loop iteration; NULL: none */
    TAILQ_HEAD(unused_servers, server) unused_servers;
    struct http2_upstreams *http2; /* NULL: no HTTP/2 connection yet */
    struct log_throttle http2_throttle[HTTP2_CAUSE_COUNT], port_throttle;
    struct upstream_stats stats;
};

/* A worker's pools for one endpoint set, by upstream index. */
struct upstream_pools {
    struct upstream_worker *worker;
    const struct policy *policy; /* of the endpoint set */
    struct endpoint_set *endpoint_set;
    unsigned version; /* of the endpoint set that the pools reflect */
    struct pool *all;
};

/* Servers tried for one exchange. No server is tried twice. */
struct upstream_tries {
    uint64_t servers;  /* bit mask by slot */
    unsigned arrivals; /* of servers in the pool, when `servers` was set */
    bool counted;      /* the request is counted for the retry budget */
};

/* Returns a link to a server of the upstream for `owner`: on a pooled connection unless `fresh`, or
 * on a new one. If it is not ready, connected() or connect_failed() follows, never from inside this
 * call. On failure returns NULL and sets `*failure`. */
struct link *upstream_take(struct upstream_pools *pools, unsigned upstream,
                           struct link_owner *owner, bool fresh, struct upstream_tries *tries,
                           enum link_failure *failure);

/* ---- server_counts.c: what is counted of servers; see upstream_stats.h ---- */

/* A request is sent: it is in flight until link_release(). */
void server_stats_begin(struct link *link);
/* The final header of a response has arrived, `us` after the request was sent. */
void server_stats_response(const struct link *link, uint16_t status, uint64_t us);
/* The response was read completely, `us` after the request was sent. */
void server_stats_last(const struct link *link, uint64_t us);
/* The request has failed at this server. Counted once. */
void server_stats_error(struct link *link, enum server_error error);
/* The same if it got no connection. Counts no lack of weir's own. */
void server_stats_unconnected(struct link *link, enum link_failure failure);
/* The request goes to another server. */
void server_stats_retry(const struct link *link);

/* ---- servers of links ---- */

/* Returns the server as the policy has it. */
const struct upstream_server *link_server(const struct link *link);
/* Returns the server's address for logs: as written, with the resolved address for a host name. */
const char *link_server_text(const struct link *link);

/* Returns whether a response with this status counts as a failure: upstreams.NAME.eject.status has
 * it. 431 never does: the request is its reason (RFC 6585 section 5). */
bool upstream_is_failure(const struct link *link, uint16_t status);
/* Records a response that is no failure. */
void upstream_note_answer(struct link *link);
/* Records a failed request of `client`, an address or the prefix that counts as one client. Too
 * many of them, of two clients, eject the server: see upstreams.NAME.eject. */
void upstream_note_failure(struct link *link, const struct ip *client, const char *why);

/* Returns whether upstreams.NAME.retry.budget allows a retry on another server than that of
 * `link`; `ejected`: also if only ejected ones are left. If so, counts the retry and marks that
 * server as tried. */
bool upstream_retry_may(const struct link *link, bool ejected, struct upstream_tries *tries);

/* The server has stated that it has not processed the request, or has closed a reused connection.
 * Returns whether it may be sent again, also to the same server; with `budget`, that counts as a
 * retry. */
bool upstream_retry_refused_may(const struct link *link, bool budget, struct upstream_tries *tries);

/* Applies changes of the endpoint set to the pools. Called once per loop iteration. If memory runs
 * out, the next call tries again. */
void servers_refresh(struct upstream_pools *pools);

/* Initialises a worker's part. Connections are polled by `base`, end with `deadlines` and use the
 * buffers `io`. False: no memory or descriptor. */
MUST_CHECK bool upstream_worker_init(struct upstream_worker *worker, struct event_base *base,
                                     struct deadlines *deadlines, const struct body_io *io);
/* Call after all pools were freed. May be called twice, or on zeroed memory. */
void upstream_worker_clear(struct upstream_worker *worker);
/* From now on, only links of `pools` are pooled, and only its servers probed. At most `pooled_max`
 * idle connections per server are kept; 0: no limit. */
void upstream_worker_use(struct upstream_worker *worker, struct upstream_pools *pools,
                         unsigned pooled_max);
/* Closes the pooled links of the pools in use. From now on, no link is pooled and no server is
 * probed. */
void upstream_worker_stop(struct upstream_worker *worker);
/* Frees descriptors: closes pooled pipes, and some of the longest-idle connections of every server.
 * Returns false if there were none. */
bool upstream_worker_close_pooled(struct upstream_worker *worker);
/* Writes the output of this loop iteration and reports what can be read. */
void upstream_worker_flush(struct upstream_worker *worker);
/* http2_connection.c: returns whether upstream_worker_flush() has more to do.
 * upstream_worker_wake(): the loop does not wait for events. */
bool upstream_worker_has_work(const struct upstream_worker *worker);
void upstream_worker_wake(struct upstream_worker *worker);
/* Frees the links closed in this loop iteration. */
void upstream_worker_free_closed(struct upstream_worker *worker);

/* Creates the pools for an endpoint set, which the caller holds. Returns -1 if there is no
 * memory. */
int upstream_pools_init(struct upstream_pools *pools, struct upstream_worker *worker,
                        struct endpoint_set *endpoint_set);
/* Closes the pooled links and ends all probes; links in use remain. */
void upstream_pools_retire(struct upstream_pools *pools);
void upstream_pools_free(struct upstream_pools *pools);

#endif
