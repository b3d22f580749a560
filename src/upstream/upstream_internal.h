/* upstream_internal.h - a worker's servers and connections, for the files of this directory. Each
 * file calls only those below it, and receives events through struct connection_events:
 *
 *   upstream.c                         takes links, probes ejected servers
 *   servers.c                          chooses servers; arrival and removal
 *   http2_pool.c, http2_connection.c   connections of HTTP/2, and the links that wait for them
 *   http2_link.c, http2_response.c     their links
 *   http2_output.c                     their output
 *   http1_link.c                       links of HTTP/1.1, with their connections
 *   idle_pool.c                        idle connections of HTTP/1.1
 *   connection.c                       connections: TCP, TLS
 *   server_end.c, ejection.c           the end of a server; servers that fail */
#ifndef WEIR_UPSTREAM_UPSTREAM_INTERNAL_H
#define WEIR_UPSTREAM_UPSTREAM_INTERNAL_H

#include "base/recent.h"
#include "net/tls.h"
#include "upstream/upstream.h"

enum connection_state {
    CONNECTION_CONNECTING,
    CONNECTION_PROBING,
    CONNECTION_BUSY,
    CONNECTION_POOLED,
    CONNECTION_CLOSED
};

enum { CONNECTION_MAGIC = 0x434f4e4e, CONNECTION_IDLE_US = 60 * 1000000 /* idle timeout */ };

/* A connection to a server. With HTTP/1.1 it is one link; with HTTP/2 it carries many. */
struct connection {
    uint32_t magic;
    enum connection_state state;
    const struct connection_events *events;
    struct http2_connection *http2; /* NULL: HTTP/1.1 */
    struct link link;               /* its deadline is also for connecting and for the pool */

    /* HTTP/1.1 (http1_link.c) */
    bool keep_alive;    /* the server will read another request */
    bool request_ended; /* all of the request was accepted */
    bool response_over; /* takes_rest() was called */
    bool chunked;       /* the request's content */
    bool sent_trailers; /* of the request */
    bool tunnel;        /* both bodies are a tunnel's bytes */
    bool unread;        /* stream.in holds bytes that were not parsed yet */
    struct stream stream;
    enum method method;        /* of the request */
    uint64_t head_max;         /* of the response, in bytes */
    size_t scanned;            /* bytes of stream.in that response_head_read has scanned */
    char *head_end;            /* in the receive buffer: unread bytes after the final head, */
    size_t after_head;         /* and their number; only until read_body() */
    uint64_t idle_max_us;      /* how long it may be idle before its next use */
    uint64_t use_until_us;     /* while pooled: the end of that time */
    uint64_t pooled_iteration; /* loop iteration in which it was last pooled */
    uint64_t empty_iteration;  /* loop iteration in which it was last found empty while pooled */
    struct body_reader response;
    TAILQ_ENTRY(connection) entry; /* in the server's pool, or in the worker's closed ones */
};

/* Whether a server gets requests. If all are ejected, the lowest value is used first. */
enum ejected {
    EJECTED_NOT,
    EJECTED_FAILING, /* too many requests failed; for eject.time, then until a probe succeeds */
    EJECTED_DOWN     /* it refused a connection; until it accepts one */
};

/* Events counted in server.outcomes and pool.retries. */
enum request_outcome { OUTCOME_REQUEST, OUTCOME_FAILURE };
enum retry_share { RETRIES_REQUEST, RETRIES_RETRY };

TAILQ_HEAD(http2_links, http2_link);
TAILQ_HEAD(http2_connections, http2_connection);

/* HTTP/2 to a server (http2_upstream.h). */
struct http2_server {
    struct http2_connections connections;
    struct http2_links waiting; /* links without a connection: longest first */
    unsigned waiting_count;
    unsigned count, connecting; /* connections; those that are not open yet */
    unsigned streams;           /* streams that the last connection allowed; 0: unknown */
    bool is_http1;              /* protocol auto: the server has chosen HTTP/1.1 */
};

/* A worker's view of one endpoint of the endpoint set. An ejected server gets requests only if
 * all servers of its pool are ejected. It is probed by connecting until that succeeds. If its
 * endpoint leaves the endpoint set, the server leaves its pool, and is freed with its last
 * connection. */
struct server {
    struct endpoint *endpoint; /* held */
    struct pool *pool;
    unsigned slot;        /* index in the pool, while not gone */
    unsigned arrival;     /* its number in the pool, from 1 */
    unsigned outstanding; /* links, waiting or in use, and probes of HTTP/1.1 */
    unsigned pooled_count;
    uint64_t taken_iteration; /* last loop iteration in which a pooled link was requested */
    unsigned taken_count;     /* links taken in that iteration that were pooled before it */
    unsigned needed;          /* the same count for the previous such iteration */
    bool gone;
    struct recent outcomes;   /* of requests, enum request_outcome */
    unsigned failures;        /* consecutive failures */
    struct ip failed_client;  /* client address of the last failure */
    unsigned client_failures; /* failures since the last one of another client address */
    enum ejected ejected;
    unsigned relapses;    /* ejections for failures, each soon after the return from the last one */
    uint64_t returned_us; /* time of the return from the last ejection */
    bool logged;          /* the ejection was logged; at most one line per second per server */
    bool return_logged;   /* the last line in the log says that it is back */
    uint64_t logged_us;
    uint64_t ejected_us;        /* duration of the last ejection */
    struct deadline probe;      /* armed while ejected and no probe is running */
    struct connection *probing; /* the running probe, or NULL */
    struct tls_resumption resumption;
    struct http2_server http2;
    counter_t *counts, *first, *last;      /* rows of server_stats */
    TAILQ_HEAD(pooled, connection) pooled; /* most recently used first */
    TAILQ_ENTRY(server) link; /* if gone: pool->leaving or unused_servers of the worker */
};

/* A worker's view of one upstream. */
struct pool {
    const struct upstream *settings;
    struct upstream_pools *pools;
    struct server *servers[ENDPOINTS_MAX]; /* by slot; NULL: free */
    unsigned slots;                        /* all used slots are below this number */
    unsigned count;
    unsigned arrivals;     /* servers that have had a slot */
    unsigned next;         /* start of the search: equal servers are used in round-robin order */
    struct recent retries; /* within RETRY_WINDOW_US, enum retry_share */
    TAILQ_HEAD(leaving, server) leaving;
};

/* Returns whether requests may be sent to the server: it has not left, and no reload has replaced
 * its pool. */
static inline bool server_is_in_use(const struct server *server)
{
    const struct upstream_pools *pools = server->pool->pools;
    return !server->gone && pools == pools->worker->pools;
}

/* ---- ejection.c ------------------------------------------------------------------------------ */

/* Ejects a server that did not accept a connection, if it is in use. Its first probe follows after
 * 1 s, then at doubled intervals up to 32 s. */
void server_eject(struct server *server, const char *why);
/* A connection or probe failed for a reason that is not the server's: if it is ejected, it is
 * probed again after the same time. */
void server_probe_again(struct server *server);
/* Ends the ejection: the server accepts connections or answers again. `what` is for the log. */
void server_admit(struct server *server, const char *what);
/* Removes the server from the count of ejected ones, for instance before it is freed. */
void server_forget_ejection(struct server *server);
/* ---- server_counts.c ------------------------------------------------------------------------- */

/* Finds the counters of a new server. */
void server_find_counts(struct server *server);

/* ---- server_end.c ---------------------------------------------------------------------------- */

/* Schedules the server to be freed if it has left its pool and its last link has closed. */
void server_free_if_unused(struct server *server);
void servers_free_unused(struct upstream_worker *worker);
void server_free(struct server *server);

/* ---- servers.c ------------------------------------------------------------------------------- */

/* Returns whether any server is healthy by its health checks. */
bool servers_any(const struct pool *pool);
/* Marks the server as tried. */
static inline void server_tried(const struct server *server, struct upstream_tries *tries)
{
    if (server->gone)
        return;
    tries->servers |= (uint64_t)1 << server->slot;
    tries->arrivals = server->pool->arrivals;
}
/* Servers that have replaced tried ones since are untried. Call before server_tried(). */
void servers_forget_replaced(const struct pool *pool, struct upstream_tries *tries);
/* Returns the server with the fewest outstanding requests. Ejected servers are used only if all
 * are ejected. NULL: all were tried. */
struct server *servers_choose(struct pool *pool, const struct upstream_tries *tries);

/* ---- connection.c ---------------------------------------------------------------------------- */

/* Logs that no local port is left for a connection to the server (LINK_FAILED_NO_PORTS). */
void server_report_no_port(const struct server *server);

/* The protocol of a connection: what it does with the events. Each may close the connection. */
struct connection_events {
    /* It is established, with TLS if the upstream uses it. */
    void (*up)(struct connection *c);
    /* It was closed, and the server ejected if the failure is its own. `owner`: of its link until
     * then, or NULL. */
    void (*failed)(struct connection *c, struct link_owner *owner, enum link_failure failure);
    void (*readable)(struct connection *c);
    void (*writable)(struct connection *c);
    /* Its time in the pool has passed. */
    void (*idle)(struct connection *c);
};

/* What a connection is dialed for. */
struct connection_use {
    const struct connection_events *events;
    struct link_owner *owner;       /* of its link; NULL: none */
    struct http2_connection *http2; /* NULL: HTTP/1.1 */
    bool probe;                     /* of an ejected server */
};

/* Connects to the server. The connection is CONNECTING or PROBING or, with HTTP/1.1 on a unix
 * socket, BUSY. NULL with errno on failure. */
struct connection *connection_dial(struct server *server, const struct connection_use *use);
/* Closes the connection; it is freed after the loop iteration. */
void connection_close(struct connection *c);
/* Closes it, and ejects the server unless weir has no memory; its owner or its links are
 * notified. */
void connection_failed(struct connection *c, enum link_failure failure, const char *why);
/* Returns whether an idle connection or its socket holds unexpected data or has ended. */
bool connection_is_stale(struct connection *c);
/* Returns whether the server has closed a reused connection before it received the request. */
bool connection_closed_idle(const struct connection *c);
void connections_init(struct upstream_worker *worker, struct deadlines *deadlines);
void connections_free_closed(struct upstream_worker *worker);

/* ---- idle_pool.c ----------------------------------------------------------------------------- */

/* Takes a pooled connection; NULL: none. */
struct link *server_take_pooled(struct server *server, struct link_owner *owner);
/* Closes a connection of HTTP/1.1, or pools it. `reusable`: both messages ended cleanly and the
 * server will read another request. */
void connection_release(struct connection *c, bool reusable);
/* Returns whether idle connections to the server are kept: its pool is in use. */
bool server_keeps_idle(const struct server *server);

/* ---- http1_link.c ---------------------------------------------------------------------------- */

/* Dials a connection for `owner`. Returns its link, or NULL with errno. */
struct link *http1_take(struct server *server, struct link_owner *owner);
/* Dials a connection to probe an ejected server. False, with errno: it could not be dialed. */
bool http1_probe(struct server *server);
/* Makes a connection one of HTTP/1.1, also one that was dialed for HTTP/2. */
void http1_adopt(struct connection *c);

#endif
