#include "explain/explanation.h"

#include <stdlib.h>

#include "downstream/http1_head.h"
#include "explain/explainer.h"
#include "proxy/worker_state.h"

struct explainer *explainer_new(struct policy *policy, bool reads_state)
{
    struct explainer *m = calloc(1, sizeof *m);

    if (!m)
        return NULL;
    m->answers = (struct dry_run_answers){explain_quota, explain_decide};
    m->reads_state = reads_state;
    m->policy = policy_hold(policy);
    m->redis.policy = policy;
    if ((m->run = dry_run_new(policy, &m->answers)))
        return m;
    explainer_free(m);
    return NULL;
}

void explainer_free(struct explainer *m)
{
    if (!m)
        return;
    if (m->reads_state)
        grants_publish(NULL);
    query_redis_close(&m->redis);
    dry_run_free(m->run);
    policy_drop(m->policy);
    arena_free(&m->arena);
    free(m);
}

/* Returns whether the rules were searched. */
static bool reached_rules(const struct explainer *m, const struct exchange *x)
{
    return x->route.rule || m->now.result.cause == CAUSE_BAD_REQUEST ||
           m->now.result.cause == CAUSE_CONTENT_TOO_LARGE;
}

static void fill_explanation(struct explainer *m)
{
    struct exchange *x = dry_run_exchange(m->run);
    struct explanation *now = &m->now;

    m->identity = x->worker->incoming.identity;
    now->identity = &m->identity;
    now->rule = x->route.rule;
    x->worker->incoming.head = &m->received;
    explain_identity(m, x);
    policy_sort_headers(m->policy, &m->identity, &m->sorted.fields);
    x->worker->incoming.head = &m->sorted;
    if (now->has_client && reached_rules(m, x))
        explain_rules(m, x);
    if (now->has_client && now->rule)
        explain_limits(m, x);
    if (explanation_forwards(now))
        explain_fields(m, x);
}

/* Runs the request. Returns false if out of memory. */
static bool run_request(struct explainer *m, const struct explain_request *request,
                        const struct framing *framing)
{
    struct dry_request dry = {
        .head = &m->used,
        .framing = *framing,
        .content = request->content,
        .origin = {.secure = request->https,
                   .certificate = m->now.certificate_unasked ? NULL : request->certificate,
                   .version = HTTP_VERSION_1},
    };

    client_origin_set_peer(&dry.origin, &request->from);
    m->now.limit_count = 0;
    m->now.rejected_by = -1;
    return dry_run_request(m->run, &dry, &m->now.result);
}

/* The identity is known after the first run; its grant may change the second. */
static bool run_with_grant(struct explainer *m, const struct explain_request *request,
                           const struct framing *framing)
{
    struct exchange *x = dry_run_exchange(m->run);

    if (!m->reads_state || m->failed || !x->identity_size || !policy_needs_redis(m->policy))
        return !m->failed;
    m->identity = x->worker->incoming.identity;
    dry_run_end(m->run);
    if (!explain_read_grant(m, &m->identity))
        return false;
    m->used = m->received;
    return run_request(m, request, framing) && !m->failed;
}

/* The listeners with TLS that forward requests. */
struct tls_listeners {
    unsigned count, requesting, requiring; /* requesting, requiring: certificates of clients */
};

static struct tls_listeners tls_listeners_of(const struct policy *policy)
{
    struct tls_listeners found = {0};

    for (unsigned i = 0; i < policy->listen_count; i++) {
        const struct listen_settings *listener = &policy->listen[i];
        if (!listener->tls || listener->decides || listener->serves_limits)
            continue;
        const struct listen_tls_entry *entry = &listener->tls->entries[0];
        found.count++;
        found.requesting += entry->client_ca != NULL;
        found.requiring +=
            entry->client_ca && entry->client_certificate == CLIENT_CERTIFICATE_REQUIRED;
    }
    return found;
}

static void begin_explanation(struct explainer *m, const struct explain_request *request)
{
    const struct tls_listeners tls = tls_listeners_of(m->policy);

    dry_run_end(m->run);
    arena_free(&m->arena);
    m->failed = false;
    m->now = (struct explanation){.rejected_by = -1,
                                  .state_was_read = m->reads_state,
                                  .content_size = request->content.n,
                                  .https_unserved = request->https && !tls.count,
                                  .certificate_unasked = request->certificate && !tls.requesting,
                                  .certificate_missing = request->https && !request->certificate &&
                                                         tls.count && tls.requiring == tls.count};
}

const struct explanation *explainer_explain(struct explainer *m,
                                            const struct explain_request *request)
{
    struct http1_head_result head;
    size_t seen = 0;

    begin_explanation(m, request);
    enum scan scan = http1_head_parse(request->head, m->policy->size_limits.request_header, &seen,
                                      &m->used, &head);
    if (scan != SCAN_WHOLE) {
        m->now.result = (struct dry_run_result){head.status, head.cause, head.why};
        return &m->now;
    }
    m->received = m->sorted = m->used;
    m->now.was_parsed = true;
    m->now.head = &m->received;
    if (!run_request(m, request, &head.framing) || !run_with_grant(m, request, &head.framing))
        return NULL;
    fill_explanation(m);
    return &m->now;
}
