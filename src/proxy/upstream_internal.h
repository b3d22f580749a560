/* upstream_internal.h - what upstream.c (links) and servers.c (whom they go to) share. Nobody else includes it. */
#ifndef WEIR_PROXY_UPSTREAM_INTERNAL_H
#define WEIR_PROXY_UPSTREAM_INTERNAL_H

#include "base/recent.h"
#include "net/tls.h"
#include "proxy/upstream.h"

/* Whether a server gets requests; those that are further down come last if there is no other. */
enum ejected {
    EJECTED_NOT,
    EJECTED_FAILING, /* too many requests failed; for a time, and then until it accepts a connection */
    EJECTED_DOWN     /* it did not accept a connection; until it does */
};

/* What server.outcomes and pool.retries count. */
enum outcome { OUTCOME_REQUEST, OUTCOME_FAILURE };
enum retries { RETRIES_REQUEST, RETRIES_RETRY };

/* A worker's view of one member of the endpoint set. It is up, or ejected: it gets requests only when all its fellows are
 * ejected too, and is probed by connecting to it until that succeeds. When its member has gone from the endpoint set it
 * leaves its pool, and is freed with its last link. */
struct server {
    struct endpoint *endpoint; /* held */
    struct pool *pool;
    unsigned slot;        /* in the pool, while not gone */
    unsigned outstanding; /* links CONNECTING, PROBING or BUSY */
    unsigned pooled_count;
    uint64_t taken_turn; /* the worker's loop iteration in which a link was taken from the pool last */
    unsigned looked_for; /* links taken in that turn that had been pooled before it */
    unsigned needed;     /* the same of the turn before in which one was taken */
    bool gone;
    struct recent outcomes; /* of requests, enum outcome */
    unsigned failures;      /* in a row */
    enum ejected ejected;
    unsigned relapses;    /* ejections for failures, each soon after the return from the one before */
    uint64_t returned_us; /* from the last one */
    bool said; /* that it was ejected; a server that comes and goes is not logged more than once a second */
    uint64_t said_us;
    uint64_t ejected_us;   /* for how long, last time */
    struct deadline probe; /* armed while ejected and not being probed */
    struct link *probing;  /* the probe under way, or NULL */
    struct tls_resumption resumption;
    TAILQ_HEAD(pooled, link) pooled; /* last used first */
    TAILQ_ENTRY(server) link;        /* gone: the pool's leaving, or the worker's list of closed objects */
};

/* A worker's view of one upstream. */
struct pool {
    const struct upstream *settings;
    struct generation *generation;
    struct server *servers[ENDPOINTS_MAX]; /* by slot; NULL: free */
    unsigned slots;                        /* no server is at or behind this one */
    unsigned count;
    unsigned next;         /* where to start looking: equal servers take turns */
    struct recent retries; /* within RETRY_WINDOW_US, enum retries */
    TAILQ_HEAD(leaving, server) leaving;
};

/* ejection.c: it did not accept a connection. Probes it after a second, and then more rarely, until it does. */
void server_eject(struct server *server, const char *why);
/* It accepts connections again. */
void server_admit(struct server *server, const char *what);
/* It is freed: it no longer counts as ejected. */
void server_forget_ejection(struct server *server);
/* A link of it has closed: frees it where it is gone and that was the last one. */
void server_free_if_unused(struct server *server);
void servers_free_unused(struct worker *worker);

/* Is there a server at all that may be asked? */
bool servers_any(const struct pool *pool);
/* The server with the least outstanding requests; one that is ejected only when all are. NULL: all were tried. */
struct server *servers_choose(struct pool *pool, const struct upstream_tries *tries);

void link_close(struct link *link);

#endif
