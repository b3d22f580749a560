/* service_call.c - calls of the rate limit service: from the message to the decision, and from the
 * decision to the response. */
#include "base/clock.h"
#include "limit/header_families.h"
#include "proxy/grpc.h"
#include "proxy/reply.h"
#include "proxy/service_internal.h"
#include "service/call_reader.h"
#include "service/call_response.h"

/* ---- decision -------------------------------------------------------------------------------- */

static enum step decide_call(struct exchange *x, const struct rate_limit_call *call,
                             const char *why)
{
    if (why)
        return service_unreadable(x, why);
    if (limiter_decide_call(x->generation->limiter, call, &x->service->request) == DECIDED_NOW)
        return service_call_decided(x);
    return STEP_WAIT;
}

enum step service_call_begin(struct exchange *x, struct slice message)
{
    struct rate_limit_call call;
    const char *why = call_read_protobuf(&x->worker->service.memory, message, &call);

    return decide_call(x, &call, why);
}

enum step service_json_begin(struct exchange *x, struct slice content)
{
    struct rate_limit_call call;
    const char *why = call_read_json(&x->worker->service.memory, content, &call);

    return decide_call(x, &call, why);
}

/* The call is rejected, also if `shadow` lets it pass. */
static bool call_rejects(const struct call_decision *d)
{
    return d->verdict == VERDICT_LIMITED || d->verdict == VERDICT_PROHIBITED;
}

/* Counts every descriptor that has limits among the top clients. The access log names the one that
 * rejects, else the first one. */
static void note_clients(struct exchange *x, const struct call_decision *d)
{
    struct top_clients *top = &x->worker->top_clients;
    const struct descriptor_result *named = NULL;

    for (unsigned i = 0; i < d->count; i++) {
        const struct descriptor_result *r = &d->results[i];
        if (!r->client)
            continue;
        top_keys_add(top->by[r->over ? TOP_BY_LIMITED : TOP_BY_ALLOWED], x->record.started_us,
                     descriptor_name_text(r->client), 1);
        if (!named || (r->over && !named->over))
            named = r;
    }
    if (!named)
        return;
    memcpy(x->identity, named->client->text, named->client->size);
    x->identity_size = named->client->size;
}

enum step service_call_decided(struct exchange *x)
{
    struct call_decision *d = &x->service->request.decision;
    struct decision *shown = &x->decision_request.decision;

    x->limits.progress = LIMITS_DECIDED;
    x->service->answered_us = clock_cached_us();
    *shown = d->shown;
    shown->verdict = d->verdict;
    note_clients(x, d);
    if (d->verdict == VERDICT_FAILED_CLOSED)
        return step_reply_with(x, 503);
    return step_reply_with(x, call_rejects(d) && !x->policy->rate_limit_service.shadow ? 429 : 200);
}

/* ---- response -------------------------------------------------------------------------------- */

enum { HEADER_LINES_MAX = 8 * 1024 };

/* The fields of a response. In shadow mode a rejection has those of an admitted call, and no
 * Retry-After. */
static void write_fields(struct exchange *x, bool over, struct text *lines)
{
    struct decision *shown = &x->decision_request.decision;
    struct decision admitted;

    if (over)
        decision_spread(shown, x->policy->rejection.jitter, worker_random(x->worker));
    else if (!decision_admits(shown)) {
        admitted = *shown;
        admitted.verdict = VERDICT_ALLOWED;
        shown = &admitted;
    }
    decision_fields_write(lines, shown, x->policy->rate_limit_service.headers,
                          clock_cached_wall_us(), NULL);
}

static enum downstream_sent send_json(struct exchange *x, const struct call_response *response)
{
    enum downstream_sent sent = DOWNSTREAM_TOO_LARGE;
    struct text out;

    if (!call_response_write_json(response, &out))
        x->record.cause = CAUSE_NO_MEMORY;
    else if (out.n <= IOBUF_LARGE)
        sent = reply_send_document(x, SLICE("application/json"), text_slice(&out));
    free(out.p);
    return sent;
}

static enum downstream_sent send_protobuf(struct exchange *x, const struct call_response *response)
{
    struct text frame = text_over(x->worker->send, sizeof x->worker->send);

    frame.n = GRPC_PREFIX;
    if (!call_response_write_protobuf(&x->worker->service.memory, response, &frame)) {
        if (x->worker->service.memory.lacks)
            x->record.cause = CAUSE_NO_MEMORY;
        return DOWNSTREAM_TOO_LARGE;
    }
    grpc_message_prefix(frame.p, frame.n - GRPC_PREFIX);
    return service_send_message(x, text_slice(&frame), true);
}

static enum downstream_sent send_response(struct exchange *x, const struct call_response *response)
{
    return x->grpc ? send_protobuf(x, response) : send_json(x, response);
}

enum downstream_sent service_call_reply(struct exchange *x)
{
    const struct call_decision *d = &x->service->request.decision;
    char line_bytes[HEADER_LINES_MAX];
    struct text lines = text_over(line_bytes, sizeof line_bytes);
    struct call_response response = {.over = x->record.status == 429,
                                     .count = d->count,
                                     .results = d->results,
                                     .metadata = d->metadata,
                                     .metadata_count = d->metadata_count};

    write_fields(x, response.over, &lines);
    response.header_lines = lines.failed ? SLICE_NONE : text_slice(&lines);
    if (response.over)
        response.body = reply_configured_body(x, &x->worker->service.memory);
    enum downstream_sent sent = send_response(x, &response);
    if (sent == DOWNSTREAM_TOO_LARGE && x->record.cause == CAUSE_NONE && response.body.n) {
        response.body = SLICE_NONE;
        sent = send_response(x, &response);
    }
    call_memory_reset(&x->worker->service.memory);
    return sent;
}

/* ---- metrics --------------------------------------------------------------------------------- */

static enum service_code code_of_status(enum grpc_code status)
{
    switch (status) {
    case GRPC_OK: return SERVICE_OK;
    case GRPC_INVALID_ARGUMENT: return SERVICE_INVALID_ARGUMENT;
    case GRPC_DEADLINE_EXCEEDED: return SERVICE_DEADLINE_EXCEEDED;
    case GRPC_PERMISSION_DENIED: return SERVICE_PERMISSION_DENIED;
    case GRPC_RESOURCE_EXHAUSTED: return SERVICE_RESOURCE_EXHAUSTED;
    case GRPC_UNIMPLEMENTED: return SERVICE_UNIMPLEMENTED;
    case GRPC_INTERNAL: return SERVICE_INTERNAL;
    case GRPC_UNAVAILABLE: return SERVICE_UNAVAILABLE;
    default: return SERVICE_UNKNOWN;
    }
}

static enum service_code counted_code(const struct exchange *x)
{
    if (x->record.cause == CAUSE_CLIENT_GONE || x->record.cause == CAUSE_CLIENT_STALLED)
        return SERVICE_CANCELLED;
    if (!service_answers(x))
        return code_of_status(grpc_status(x));
    return x->record.status == 429 ? SERVICE_OVER_LIMIT : SERVICE_OK;
}

void service_call_count(const struct exchange *x)
{
    const struct call_decision *d = &x->service->request.decision;
    unsigned row = x->limits.progress == LIMITS_DECIDED && d->domain ? d->domain->row : 0;

    counter_add(counter_table_row(&x->worker->stats.by_domain, row) + counted_code(x), 1);
    if (x->service->answered_us)
        histogram_add(&x->worker->stats.service_duration,
                      x->service->answered_us - x->record.started_us);
}
