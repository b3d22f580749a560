/* step_service.c - SERVICE: a request on a listener of rate_limit_service, from its header to its
 * reply. It reads the content, and hands it to the resource that the path names. */
#include <limits.h>

#include "http/own_host.h"
#include "proxy/access_log.h"
#include "proxy/relay_halves.h"
#include "proxy/reply.h"
#include "proxy/service_internal.h"
#include "service/call_reader.h"

/* ---- the resources --------------------------------------------------------------------------- */

/* A resource of the listener. */
struct service_resource {
    struct slice path;
    enum method method;
    bool grpc;   /* a method of a gRPC service */
    bool public; /* also for peers that may not ask */
    bool counts; /* in weir_rate_limit_service_requests_total */
    /* Answers a request with its content: of gRPC calls, the message. */
    enum step (*answer)(struct exchange *x, struct slice content);
    enum downstream_sent (*reply)(struct exchange *x); /* in REPLY */
};

static const struct service_resource resources[] = {
    {SLICE("/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"), METHOD_POST, true,
     false, true, service_call_begin, service_call_reply},
    {SLICE("/json"), METHOD_POST, false, false, true, service_json_begin, service_call_reply},
    {SLICE("/grpc.health.v1.Health/Check"), METHOD_POST, true, true, false, service_check,
     service_check_reply},
    {SLICE("/grpc.health.v1.Health/Watch"), METHOD_POST, true, true, false, service_watch, NULL},
    {SLICE("/healthcheck"), METHOD_GET, false, true, false, service_healthcheck,
     service_healthcheck_reply}};

static const struct service_resource *resource_of(struct slice path)
{
    for (unsigned i = 0; i < COUNT_OF(resources); i++)
        if (slice_equal(path, resources[i].path))
            return &resources[i];
    return NULL;
}

/* ---- begin ----------------------------------------------------------------------------------- */

static bool service_new(struct exchange *x)
{
    struct worker *w = x->worker;
    struct service_request *s = free_list_take(&w->service.free);

    if (!s) {
        if (!(s = malloc(sizeof *s)))
            return false;
        memory_take(&w->buffers.memory, sizeof *s);
    }
    s->exchange = x;
    s->resource = NULL;
    s->is_watch = false;
    s->answered_us = 0;
    x->service = s;
    call_request_init(&s->request, service_on_decided);
    return true;
}

static enum step check_service_head(struct exchange *x, const struct request_head *head)
{
    const struct service_resource *resource = resource_of(head->path);
    bool is_method = resource && (head->method == resource->method ||
                                  (head->method == METHOD_HEAD && resource->method == METHOD_GET));

    x->service->resource = resource;
    if (!(resource && resource->public) && !service_trusts_peer(x))
        return step_fail(x, CAUSE_CALLER_NOT_TRUSTED, NULL);
    if (!resource)
        return step_fail(x, CAUSE_NO_RESOURCE, NULL);
    x->service->methods = resource->method == METHOD_POST ? SLICE("POST") : SLICE("GET, HEAD");
    if (!is_method)
        return step_fail(x, CAUSE_WRONG_METHOD, NULL);
    /* Browsers ask before they send a gRPC call, or a request of another type than a form's, to
     * another site. A form could carry JSON. */
    if (!resource->grpc && !fields_are_of_own_page(&head->fields, head->host))
        return step_fail(x, CAUSE_CALLER_NOT_TRUSTED, "a page of another site sent the request");
    if (resource->grpc && !x->grpc)
        return step_fail(x, CAUSE_NO_GRPC_CALL, NULL);
    if (resource->grpc && !grpc_is_protobuf(head))
        return step_fail(x, CAUSE_CALL_NOT_SUPPORTED, "a message that is not protobuf");
    if (resource->grpc && !timer_is_set(&x->call) &&
        fields_next_named(&head->fields, SLICE("grpc-timeout"), NULL))
        return step_fail(x, CAUSE_BAD_REQUEST,
                         "grpc-timeout is not 1 to 8 digits and a unit"); /* as grpc-go does */
    if (!resource->grpc && fields_next_named(&head->fields, SLICE("Content-Encoding"), NULL))
        return step_fail(x, CAUSE_BAD_CALL, "the content is compressed");
    return STEP_NEXT;
}

/* ---- content --------------------------------------------------------------------------------- */

enum step service_unreadable(struct exchange *x, const char *why)
{
    return x->worker->service.memory.lacks ? step_fail(x, CAUSE_NO_MEMORY, NULL)
                                           : step_fail(x, CAUSE_BAD_CALL, why);
}

static enum step answer_call(struct exchange *x)
{
    const struct service_resource *resource = x->service->resource;
    struct slice content = x->request.kept ? iobuf_slice(x->request.kept) : SLICE("");
    struct slice message = content;
    enum grpc_message_result result =
        resource->grpc ? grpc_message_read(content, &message) : GRPC_MESSAGE_READ;

    if (x->request.ahead || message.n > CALL_CONTENT_MAX)
        return step_fail(x, CAUSE_BAD_CALL, "the content is larger than 64 KiB");
    if (result == GRPC_MESSAGE_COMPRESSED)
        return step_fail(x, CAUSE_CALL_NOT_SUPPORTED, "a compressed message");
    if (result == GRPC_MESSAGE_BAD)
        return step_fail(x, CAUSE_BAD_CALL, "the content is not one gRPC message");
    enum step step = resource->answer(x, message);
    call_memory_reset(&x->worker->service.memory);
    iobuf_put(&x->worker->buffers, &x->request.kept);
    return step;
}

static enum step begin_service(struct exchange *x)
{
    struct request_head *head = x->worker->incoming.head;

    x->request.max = 0; /* the bound below applies */
    if (x->policy->log.access != ACCESS_OFF)
        access_log_begin(x, head);
    if (!service_new(x))
        return step_fail(x, CAUSE_NO_MEMORY, NULL);
    enum step step = check_service_head(x, head);
    if (step == STEP_FAIL)
        return step;
    return x->request.progress == MESSAGE_END || head->method == METHOD_GET ||
                   head->method == METHOD_HEAD
               ? answer_call(x)
               : content_begin(x);
}

static enum step read_call(struct exchange *x)
{
    enum step step = content_read(x, CALL_CONTENT_MAX + GRPC_PREFIX);

    return step == STEP_NEXT ? answer_call(x) : step;
}

enum step step_service(struct exchange *x)
{
    if (exchange_has(x, EVENT_ENTERED))
        return begin_service(x);
    if (exchange_has(x, EVENT_DECIDED))
        return service_call_decided(x);
    if (exchange_is_answering(x))
        return service_watch_go_on(x);
    if (exchange_has(x, EVENT_CLIENT_READABLE | EVENT_CLIENT_CUT_SHORT))
        return read_call(x);
    return exchange_has(x, EVENT_CONTENT_LATE) ? request_late(x) : STEP_WAIT;
}

/* ---- reply ----------------------------------------------------------------------------------- */

enum downstream_sent service_reply_send(struct exchange *x)
{
    enum downstream_sent sent = x->service->resource->reply(x);

    if (sent != DOWNSTREAM_TOO_LARGE)
        return sent;
    if (x->record.cause == CAUSE_NONE)
        x->record.cause = CAUSE_REPLY_TOO_LARGE;
    x->record.status = cause_table[x->record.cause].status;
    exchange_log(x, x->record.cause, NULL);
    return reply_send(x, NULL);
}

/* ---- the end, and the worker ----------------------------------------------------------------- */

void service_end(struct exchange *x)
{
    struct service_request *s = x->service;

    if (s->resource && s->resource->counts)
        service_call_count(x);
    call_request_end(&s->request);
    service_watch_end(s);
    free_list_put(&x->worker->service.free, s);
    x->service = NULL;
}

void service_worker_init(struct worker *w)
{
    TAILQ_INIT(&w->service.watches);
}

void service_worker_trim(struct worker *w)
{
    memory_give(&w->buffers.memory,
                free_list_trim(&w->service.free) * sizeof(struct service_request));
}

void service_worker_free(struct worker *w)
{
    memory_give(&w->buffers.memory,
                free_list_drop(&w->service.free, UINT_MAX) * sizeof(struct service_request));
    call_memory_free(&w->service.memory);
}
