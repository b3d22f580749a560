/* upstream_internal.h - shared by upstream.c (links), http1_link.c, servers.c (choice of servers)
 * and ejection.c. Not included elsewhere. */
#ifndef WEIR_UPSTREAM_UPSTREAM_INTERNAL_H
#define WEIR_UPSTREAM_UPSTREAM_INTERNAL_H

#include "base/recent.h"
#include "net/tls.h"
#include "upstream/upstream.h"

/* Whether a server gets requests. If all are ejected, the lowest value is used first. */
enum ejected {
    EJECTED_NOT,
    EJECTED_FAILING, /* too many requests failed; for eject.time, then until a probe succeeds */
    EJECTED_DOWN     /* it refused a connection; until it accepts one */
};

/* Events counted in server.outcomes and pool.retries. */
enum outcome { OUTCOME_REQUEST, OUTCOME_FAILURE };
enum retries { RETRIES_REQUEST, RETRIES_RETRY };

/* A worker's view of one endpoint of the endpoint set. An ejected server gets requests only if
 * all servers of its pool are ejected. It is probed by connecting until that succeeds. If its
 * endpoint leaves the endpoint set, the server leaves its pool. It is freed with its last link. */
struct server {
    struct endpoint *endpoint; /* held */
    struct pool *pool;
    unsigned slot;        /* index in the pool, while not gone */
    unsigned outstanding; /* number of links CONNECTING, PROBING or BUSY */
    unsigned pooled_count;
    uint64_t taken_iteration; /* last loop iteration in which a pooled link was requested */
    unsigned taken_count;     /* links taken in that iteration that were pooled before it */
    unsigned needed;          /* the same count for the previous such iteration */
    bool gone;
    struct recent outcomes; /* of requests, enum outcome */
    unsigned failures;      /* consecutive failures */
    enum ejected ejected;
    unsigned relapses;    /* ejections for failures, each soon after the return from the last one */
    uint64_t returned_us; /* time of the return from the last ejection */
    bool logged;          /* the ejection was logged; at most one line per second per server */
    uint64_t logged_us;
    uint64_t ejected_us;   /* duration of the last ejection */
    struct deadline probe; /* armed while ejected and no probe is running */
    struct link *probing;  /* the running probe, or NULL */
    struct tls_resumption resumption;
    TAILQ_HEAD(pooled, link) pooled; /* most recently used first */
    TAILQ_ENTRY(server) link;        /* if gone: pool->leaving or unused_servers of the worker */
};

/* A worker's view of one upstream. */
struct pool {
    const struct upstream *settings;
    struct upstream_pools *pools;
    struct server *servers[ENDPOINTS_MAX]; /* by slot; NULL: free */
    unsigned slots;                        /* all used slots are below this number */
    unsigned count;
    unsigned next;         /* start of the search: equal servers are used in round-robin order */
    struct recent retries; /* within RETRY_WINDOW_US, enum retries */
    TAILQ_HEAD(leaving, server) leaving;
};

/* ejection.c: ejects a server that did not accept a connection. Its first probe follows after 1
 * s, then at doubled intervals up to 32 s. */
void server_eject(struct server *server, const char *why);
/* Ends the ejection: the server accepts connections or answers again. `what` is for the log. */
void server_admit(struct server *server, const char *what);
/* Removes the server from the count of ejected ones, for instance before it is freed. */
void server_forget_ejection(struct server *server);
/* Schedules the server to be freed if it has left its pool and its last link has closed. */
void server_free_if_unused(struct server *server);
void servers_free_unused(struct upstream_worker *worker);

/* Returns whether any server is healthy by its health checks. */
bool servers_any(const struct pool *pool);
/* Returns the server with the fewest outstanding requests. Ejected servers are used only if all
 * are ejected. NULL: all were tried. */
struct server *servers_choose(struct pool *pool, const struct upstream_tries *tries);

void link_close(struct link *link);

/* Closes a link, or pools it. `reusable`: both messages ended cleanly and the server will read
 * another request. */
void upstream_release(struct link *link, bool reusable);

/* See closed_idle() in link.h. */
bool upstream_closed_idle(const struct link *link);

/* http1_link.c */
extern const struct link_ops http1_link_ops;
/* The socket accepts output. May release the link. */
void http1_link_writable(struct link *link);

#endif
