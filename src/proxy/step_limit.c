/* step_limit.c - LIMIT: the limits decide, at once or when Redis replies. */
#include "http/rewrite.h"
#include "http/trailers.h"
#include "net/tls_certificate.h"
#include "proxy/added_usage.h"
#include "proxy/granted.h"
#include "proxy/response_cost.h"
#include "proxy/route.h"
#include "proxy/upgrade.h"
#include "proxy/waiting_request.h"

/* Writes the header for the upstream to x->request.head. */
static enum step write_request_head(struct exchange *x)
{
    const struct incoming *in = &x->worker->incoming;
    const struct request_head *head = in->head;
    const struct client_origin *origin = x->downstream->origin;
    const char *certificate_header =
        origin->certificate ? x->route.rule->upstream->certificate_header : NULL;

    struct forward_facts facts = {
        .host = head->host.n ? SLICE_NONE : upstream_host(x->route.rule->upstream),
        .peer_ip = {origin->peer_ip, origin->peer_ip_size},
        .peer_trusted = in->identity.peer_trusted,
        .path = x->route.path,
        .forwarded = x->route.rule->upstream->forwarded,
        .version = origin->version,
        .trailers = request_accepts_trailers(head, origin->version),
        .scheme = origin->secure ? SLICE("https") : SLICE("http"),
        .client = x->route.rule->limit_count ? identity_text(&in->identity) : SLICE_NONE,
        .certificate_name = slice_of(certificate_header),
        .certificate_subject = certificate_header ? origin->certificate->subject : SLICE_NONE,
        .identity_coding = x->route.rule->usage_paths != NULL,
        .request_id = {x->request_id, x->id_size},
        .upgrade = fields_have(&head->fields, FIELD_UPGRADE) ? upgrade_offer(head, &in->framing)
                                                             : SLICE_NONE};
    struct text out = text_over(x->worker->send, sizeof x->worker->send);

    if (facts.upgrade.n > sizeof x->upgrade)
        facts.upgrade = SLICE_NONE;
    if (facts.upgrade.n)
        memcpy(x->upgrade, facts.upgrade.p, facts.upgrade.n);
    x->request.upgrade_size = facts.upgrade.n;
    request_head_write(&out, head, &in->framing, &facts);
    if (x->policy->has_granted_headers && !out.failed)
        granted_append(x, &out);
    if (out.failed)
        return step_fail(x, CAUSE_HEAD_TOO_LARGE, "with weir's own fields it exceeds 80 KiB");
    if (!(x->request.head = iobuf_get(&x->worker->buffers, out.n)))
        return step_fail(x, CAUSE_NO_MEMORY, NULL);
    iobuf_append(x->request.head, text_slice(&out));
    x->request.never_indexed = head->fields.never_indexed;
    return STEP_NEXT;
}

static uint16_t rejection_status(const struct exchange *x)
{
    if (x->decision_request.decision.verdict == VERDICT_FAILED_CLOSED)
        return 503;
    return (uint16_t)(x->downstream->origin->decides ? x->policy->decisions.deny_status
                                                     : x->route.rule->rejection.status);
}

/* Counts among the top clients. */
static void count_client_decision(const struct exchange *x, bool admitted)
{
    struct top_clients *top = &x->worker->top_clients;

    top_keys_add(top->by[admitted ? TOP_BY_ALLOWED : TOP_BY_LIMITED], x->record.started_us,
                 (struct slice){x->identity, x->identity_size}, 1);
}

/* Notes what the limits have charged: nothing to an unlimited client, or while `on_failure` admits
 * the request. */
static void note_charges(struct exchange *x)
{
    const struct decision *d = &x->decision_request.decision;

    memset(x->charged, 0, sizeof x->charged);
    for (unsigned i = 0; i < d->result_count; i++)
        if (d->results[i].verdict == VERDICT_ALLOWED)
            x->charged[d->results[i].place] = d->results[i].granted;
    if (x->route.rule->has_own_costs)
        memcpy(x->reserves, x->charged, sizeof x->reserves);
}

/* The decision is known: exchange.decision_request. */
static enum step apply(struct exchange *x)
{
    const struct decision *d = &x->decision_request.decision;

    x->limits.progress = LIMITS_DECIDED;
    count_client_decision(x, decision_admits(d));
    counter_add(counter_table_row(&x->worker->stats.by_rule, x->route.rule->row) + d->verdict, 1);
    if (d->priority)
        counter_add(counter_table_row(&x->worker->stats.by_priority, d->priority->row) + d->verdict,
                    1);
    if (!decision_admits(d))
        return step_reply_with(x, rejection_status(x));
    note_charges(x);
    if (x->policy->has_granted_headers)
        granted_set(x);
    return step_enter(x, d->delay_us > 0 && !x->overdue ? PHASE_HOLD : PHASE_CONNECT);
}

/* Reads what limits count by, beside the identity, into incoming.key_values. */
static enum step read_key_values(struct exchange *x)
{
    struct incoming *in = &x->worker->incoming;
    struct slice path = x->route.path.n ? x->route.path : in->head->path;
    const struct identity_input input = route_identity_input(x, in->head);
    const char *why;

    if (!key_values_read(&input, x->route.rule, &in->identity, &in->key_values, &why))
        return route_bad_identity(x, &in->identity, why);
    key_values_read_path(x->policy, x->route.rule, path, &x->worker->route, &in->key_values);
    return STEP_NEXT;
}

/* Sets exchange.reserves of the limits with costs of their own, by header fields, `values` of the
 * content, and the length of the content as far as it is known. Returns false if the request must
 * be rejected with 400 and the reason `*why`. */
static bool read_own_costs(struct exchange *x, const struct json_values *values, const char **why)
{
    const struct incoming *in = &x->worker->incoming;
    uint64_t bytes = x->downstream->origin->decides       ? BYTES_UNKNOWN
                     : in->framing.kind == FRAMING_LENGTH ? in->framing.length
                                                          : x->request.bytes;

    return rule_limit_costs(x->route.rule, in->identity.peer_trusted, &in->head->fields, values,
                            bytes, x->reserves, why);
}

/* The inputs of the decision are slices of the header, so they are used in this call only. */
static enum step decide_request(struct exchange *x)
{
    const struct incoming *in = &x->worker->incoming;
    const struct request_head *head = in->head;
    const char *why;

    if (!rule_cost_of(x->route.rule, in->identity.peer_trusted, &head->fields,
                      &x->limits.stated_cost, &why))
        return step_fail(x, CAUSE_BAD_REQUEST, why);
    struct json_values values;
    if (x->route.rule->key_sources && read_key_values(x) == STEP_FAIL)
        return STEP_FAIL;
    json_values_clear(&values);
    if (x->route.rule->request_paths && request_content_state(x) == CONTENT_VALUES)
        (void)request_content_read(x, x->route.rule->request_paths, &values);
    if (x->route.rule->has_own_costs && !read_own_costs(x, &values, &why))
        return step_fail(x, CAUSE_BAD_REQUEST, why);
    uint32_t raised = 0;
    if (x->route.rule->adds_usage && !added_usage_add(x))
        raised = rule_hidden_usage_costs(x->route.rule, in->identity.peer_trusted, &head->fields,
                                         &values, x->reserves);
    response_cost_expect(x);
    struct limit_facts facts = {
        .rule = x->route.rule,
        .identity = &in->identity,
        .client_limits = in->client_limits,
        .uncharged = rule_skips_preflight(x->route.rule, head, in->framing.kind != FRAMING_NONE),
        .cost = x->limits.stated_cost,
        .own_costs = x->route.rule->has_own_costs ? x->reserves : NULL,
        .raised = raised,
        .method = head->method_text,
        .host = head->host,
        .path = head->path,
        .fields = &head->fields,
        .json = &values,
        .values = &in->key_values};
    bool now = limiter_decide(x->generation->limiter, &facts, &x->decision_request) == DECIDED_NOW;
    bool may_forward = !now || decision_admits(&x->decision_request.decision);
    if (may_forward && !x->downstream->origin->decides && write_request_head(x) == STEP_FAIL)
        return STEP_FAIL;
    if (x->waiting)
        waiting_request_free(x);
    return now ? apply(x) : STEP_WAIT;
}

enum step step_limit(struct exchange *x)
{
    if (exchange_has(x, EVENT_DECIDED))
        return apply(x);
    return exchange_has(x, EVENT_ENTERED) ? decide_request(x) : STEP_WAIT;
}
