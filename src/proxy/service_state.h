/* service_state.h - requests on the listeners of rate_limit_service: what they have beside their
 * exchange, and what they share in a worker.
 *
 * Such an exchange has one phase before its reply, SERVICE: it reads the content, and answers it.
 *
 *   step_service.c    the resources; the content; who may ask
 *   service_call.c    calls of the rate limit service, as gRPC and as JSON
 *   service_health.c  grpc.health.v1 Check and Watch, GET /healthcheck */
#ifndef WEIR_PROXY_SERVICE_STATE_H
#define WEIR_PROXY_SERVICE_STATE_H

#include <sys/queue.h>

#include "base/free_list.h"
#include "limit/call_decision.h"
#include "service/call_memory.h"
#include "service/health_message.h"

struct exchange;
struct generation;

/* Per worker; of all peers, and of those that are not trusted. */
enum { WATCHES_MAX = 64, PUBLIC_WATCHES_MAX = 32 };

struct service_request {
    struct exchange *exchange;
    const struct service_resource *resource;
    struct slice methods;        /* of the resource, for Allow */
    uint64_t answered_us;        /* time of the decision; 0: none */
    struct call_request request; /* a call */
    /* Of a Watch: */
    bool is_watch;
    bool is_public;                     /* its peer was not trusted when it began */
    bool names_service;                 /* it names a service of weir */
    enum health_status shown;           /* last sent */
    TAILQ_ENTRY(service_request) watch; /* in service_worker.watches */
};

/* decided() of calls, in exchange_events.c. */
void service_on_decided(struct call_request *request);

/* Of a worker. */
struct service_worker {
    struct free_list free;     /* struct service_request, in the memory of the worker's buffers */
    struct call_memory memory; /* of the call that is read or answered */
    TAILQ_HEAD(watches, service_request) watches;
    unsigned watch_count, public_watch_count;
    /* The state that the watches were sent last. */
    bool shown_ready;
    const struct generation *shown_generation;
};

#endif
