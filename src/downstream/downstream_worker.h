/* downstream_worker.h - a worker's part in this directory: its listeners and client connections.
 *
 * This directory owns the client's side: sockets from accept to close, and the protocols on them.
 * Each request becomes an exchange (proxy/exchange.h) behind struct downstream
 * (proxy/downstream.h). It contains nothing of rules, limits or servers. In reading order:
 *
 *   acceptor.c, handoff.h    accepting; which worker serves a connection: slots; peer_counts.h
 *   client.h                 a connection of any protocol: lists, eviction, shutdown
 *   slow_clients.c           clients that do not take their responses
 *   shedding.c               memory is short
 *   verification.c           the end of what a client's certificate proves
 *   socket_client.h          a connection on a socket of its own
 *   opening.c                PROXY protocol header, TLS handshake
 *   http1_head.c, http1.c    HTTP/1.1: a request's head; the downstream of a request
 *   http2.h                  HTTP/2: http2.c, the connection; http2_request.c and
 *                            http2_send.c, a stream's downstream
 *   linger.c                 the input after the last response */
#ifndef WEIR_DOWNSTREAM_DOWNSTREAM_WORKER_H
#define WEIR_DOWNSTREAM_DOWNSTREAM_WORKER_H

#include <pthread.h>

#include "net/address.h"
#include "net/tls.h"
#include "proxy/worker_state.h"

struct client;

enum { HANDOFFS_MAX = 64 };

/* A worker's connection slots, and the connections that other workers pass to it. */
struct handoff {
    _Atomic unsigned slots; /* taken: connections open, being passed, or about to be accepted */
    _Atomic bool takes;     /* it serves and is not stopping */
    pthread_mutex_t lock;   /* protects the members below, and the end of `takes` */
    unsigned count;
    struct handed {
        int fd;
        unsigned listener;
        struct address peer;
    } handed[HANDOFFS_MAX];
};

/* The lists of a worker's connections. clients_cut() visits them in this order: a connection that
 * lingers after its 503 stays open. */
enum client_list_number {
    CLIENTS_LINGERING, /* response sent, rest of the input is dropped: longest first */
    CLIENTS_BUSY,      /* in a request */
    CLIENTS_HEADS,     /* part of a head, PROXY header or handshake was received: oldest first */
    CLIENTS_IDLE,      /* longest first */
    CLIENTS_SILENT,    /* nothing received yet: oldest first */
    CLIENT_LISTS
};

struct downstream_worker {
    struct poller poller;
    struct listener *listeners;
    unsigned listener_count;
    struct handoff handoff;
    bool slots_exhausted; /* every slot is taken, and connections wait in the kernel */
    bool listeners_closed;
    uint32_t slow_swept_ms, slow_sweep; /* time and number of the last sweep (slow_clients.c) */

    TAILQ_HEAD(client_list, client) lists[CLIENT_LISTS];
    unsigned silent_count;         /* of lists[CLIENTS_SILENT] */
    struct client_list closed;     /* in this loop iteration */
    struct free_list free_clients; /* struct socket_client */
    struct {
        struct deadline_queue head, idle, linger;
    } queue;

    struct protocol_worker *protocols; /* those that have a state of a worker */
    struct timer_heap expiries;        /* of verification.c */
    uint64_t generation;               /* number of the one by which clients were verified */
    struct log_throttle tls_throttle[TLS_FAILURE_COUNT];
    struct http2_worker *http2; /* NULL: no HTTP/2 connection yet */
};

#endif
