#include "proxy/retry.h"

#include "proxy/drain.h"
#include "proxy/step.h"

static const struct retry_rule {
    unsigned option;  /* bit of upstreams.NAME.retry.on; 0: not an option */
    bool sent;        /* part of the request may have been sent: repeating it must be safe */
    bool answered;    /* weir holds a response header; else no byte of a response has arrived */
    bool unprocessed; /* the server states that it has not processed the request */
    bool budget;      /* goes to another server, within retry.tries and retry.budget */
    bool ejected;     /* goes to an ejected server if no other one is left */
} rules[RETRY_CAUSE_COUNT] = {
    [RETRY_IDLE_CLOSED] = {.sent = true},
    [RETRY_GOING_AWAY] = {.sent = true, .unprocessed = true},
    [RETRY_REFUSED] = {.sent = true, .unprocessed = true, .budget = true},
    [RETRY_CONNECT] = {.option = RETRY_ON_CONNECT},
    [RETRY_RESET] = {.option = RETRY_ON_RESET, .sent = true, .budget = true, .ejected = true},
    [RETRY_TIMEOUT] = {.option = RETRY_ON_TIMEOUT, .sent = true, .budget = true, .ejected = true},
    [RETRY_502] = {.option = RETRY_ON_502, .sent = true, .answered = true, .budget = true},
    [RETRY_503] = {.option = RETRY_ON_503, .sent = true, .answered = true, .budget = true},
    [RETRY_504] = {.option = RETRY_ON_504, .sent = true, .answered = true, .budget = true},
};

/* weir still has the whole request: its header is kept, and no content was read, or all that was
 * read is kept. No response, final or interim, has been relayed. */
static bool is_whole(const struct exchange *x, const struct retry_rule *rule)
{
    bool unread = x->request.bytes == 0 && x->request.progress != MESSAGE_END;
    bool kept = iobuf_held(x->request.kept) == x->request.bytes && !x->request.trailers;
    bool complete = kept && x->request.progress == MESSAGE_END;
    bool whole = x->request.kind == FRAMING_NONE || (rule->unprocessed && kept) || complete ||
                 (unread && x->request.kind == FRAMING_LENGTH);

    return x->request.head && whole && !exchange_is_answering(x) && x->response.interim == 0;
}

/* Sending the request again is safe (RFC 9110 section 9.2.2, RFC 9113 section 8.7). */
static bool is_harmless(const struct exchange *x, const struct retry_rule *rule)
{
    return (method_is_idempotent(x->request.method) || rule->unprocessed) && is_whole(x, rule) &&
           (rule->answered || !x->upstream.link->response_begun);
}

/* The server closed a reused connection: it gets the request once more, on a new one (RFC 9112
 * section 9.3.1). An ejected server gets it only after that. */
static bool closed_reused(const struct exchange *x)
{
    return x->upstream.link->reused && !x->upstream.sent_again;
}

/* The server has refused the request: once without a budget if it closes the connection. */
static bool refused_may(struct exchange *x, const struct retry_rule *rule)
{
    bool first = !x->upstream.sent_again;

    if (rule->budget && x->upstream.retries + 1 >= x->route.rule->upstream->retry.tries)
        return false;
    if (!(rule->budget || first) ||
        !upstream_retry_refused_may(x->upstream.link, rule->budget, &x->upstream.tries))
        return false;
    x->upstream.sent_again = true;
    x->upstream.retries += rule->budget;
    return true;
}

bool retry_may(struct exchange *x, enum retry_cause cause)
{
    const struct retry_rule *rule = &rules[cause];
    const struct upstream_retry *settings = &x->route.rule->upstream->retry;

    if (cause == RETRY_NONE || exchange_drains(x) ||
        (rule->option && !(settings->on & rule->option)))
        return false;
    if (rule->sent && !is_harmless(x, rule))
        return false;
    if (rule->unprocessed)
        return refused_may(x, rule);
    if (cause == RETRY_IDLE_CLOSED) {
        bool again = closed_reused(x) &&
                     upstream_retry_refused_may(x->upstream.link, false, &x->upstream.tries);
        x->upstream.sent_again |= again;
        return again;
    }
    if (!rule->budget)
        return true;
    bool ejected = rule->ejected && !(cause == RETRY_RESET && closed_reused(x));
    if (x->upstream.retries + 1 >= settings->tries ||
        !upstream_retry_may(x->upstream.link, ejected, &x->upstream.tries))
        return false;
    x->upstream.retries++;
    x->upstream.sent_again = false;
    return true;
}

bool retry_start(struct exchange *x, enum retry_cause why, enum cause without_server)
{
    if (!retry_may(x, why))
        return false;
    server_stats_retry(x->upstream.link);
    link_release(x->upstream.link, false);
    x->upstream.link = NULL;
    x->record.response_us = 0;
    x->request.mark.since_us = x->request.blocked_since_us = 0;
    deadline_cancel(&x->client_deadline);
    if (x->request.progress != MESSAGE_END)
        x->downstream->ops->want_body(x->downstream, false);
    x->upstream.retry_why = why;
    if (without_server != CAUSE_NONE)
        x->upstream.without_server = without_server;
    exchange_enter(x, PHASE_CONNECT);
    return true;
}
