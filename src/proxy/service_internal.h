/* service_internal.h - what step_service.c and the resources share. */
#ifndef WEIR_PROXY_SERVICE_INTERNAL_H
#define WEIR_PROXY_SERVICE_INTERNAL_H

#include "proxy/grpc.h"
#include "proxy/service_listener.h"
#include "proxy/step.h"
#include "service/grpc_message.h"

/* Returns whether the peer is in rate_limit_service.trusted. */
static inline bool service_trusts_peer(const struct exchange *x)
{
    return identity_trusts(&x->policy->rate_limit_service.peers, &x->downstream->origin->peer);
}

/* Fails a request whose content cannot be read, for `why` or for lack of memory. */
enum step service_unreadable(struct exchange *x, const char *why);

/* What the resources do with the content of a request. STEP_NEXT: the reply follows, by the
 * resource's function below, or that of a failure. */
enum step service_call_begin(struct exchange *x, struct slice message);
enum step service_json_begin(struct exchange *x, struct slice content);
enum step service_check(struct exchange *x, struct slice message);
enum step service_watch(struct exchange *x, struct slice message);
enum step service_healthcheck(struct exchange *x, struct slice content);

/* DOWNSTREAM_TOO_LARGE: nothing was sent, for record.cause or because it is too large. */
enum downstream_sent service_call_reply(struct exchange *x);
enum downstream_sent service_check_reply(struct exchange *x);
enum downstream_sent service_healthcheck_reply(struct exchange *x);

/* The decision of a call is known. */
enum step service_call_decided(struct exchange *x);
/* Counts a call that ends, whether it was decided or not. */
void service_call_count(const struct exchange *x);

/* The health may have changed, or the client takes output again. */
enum step service_watch_go_on(struct exchange *x);
void service_watch_end(struct service_request *s);

/* Begins the response to a gRPC call with its message and prefix. `last`: the call has succeeded;
 * otherwise further messages follow. */
enum downstream_sent service_send_message(struct exchange *x, struct slice frame, bool last);

/* Returns the trailers of a call with this status, in the worker's memory for those. */
struct fields *service_trailers(struct exchange *x, enum grpc_code status);

#endif
