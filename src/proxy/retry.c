#include "proxy/retry.h"

#include "proxy/exchange_state.h"

static const struct retry_rule {
    unsigned option; /* bit of upstreams.NAME.retry.on; 0: not an option */
    bool sent;       /* part of the request may have been sent: repeating it must be safe */
    bool answered;   /* weir holds a response header; else no byte of a response has arrived */
    bool budget;     /* goes to another server, within retry.tries and retry.budget */
} rules[RETRY_CAUSE_COUNT] = {
    [RETRY_IDLE_CLOSED] = {.sent = true},
    [RETRY_CONNECT] = {.option = RETRY_ON_CONNECT},
    [RETRY_RESET] = {.option = RETRY_ON_RESET, .sent = true, .budget = true},
    [RETRY_TIMEOUT] = {.option = RETRY_ON_TIMEOUT, .sent = true, .budget = true},
    [RETRY_502] = {.option = RETRY_ON_502, .sent = true, .answered = true, .budget = true},
    [RETRY_503] = {.option = RETRY_ON_503, .sent = true, .answered = true, .budget = true},
    [RETRY_504] = {.option = RETRY_ON_504, .sent = true, .answered = true, .budget = true},
};

/* Sending the request again is safe: the method is idempotent (RFC 9110 section 9.2.2), and
 * weir still has the whole request (its header is kept and no content was read). No response,
 * final or interim, has been relayed. */
static bool is_harmless(const struct exchange *x)
{
    bool whole = x->request.kind == FRAMING_NONE ||
                 (x->request.kind == FRAMING_LENGTH && x->request.bytes == 0);

    return x->idempotent && x->head && whole && x->answer == ANSWER_NONE;
}

bool retry_may(struct exchange *x, enum retry_cause cause)
{
    const struct retry_rule *rule = &rules[cause];
    const struct upstream_retry *settings = &x->rule->upstream->retry;

    if (cause == RETRY_NONE || (rule->option && !(settings->on & rule->option)))
        return false;
    if (rule->sent && (!is_harmless(x) || (!rule->answered && x->link->response_begun)))
        return false;
    if (cause == RETRY_IDLE_CLOSED) { /* once (RFC 9112 section 9.3.1) */
        bool first = x->link->reused && !x->sent_again;
        x->sent_again |= first;
        return first;
    }
    if (!rule->budget)
        return true;
    if (x->retries + 1 >= settings->tries || !upstream_retry_may(x->link, &x->tries))
        return false;
    x->retries++;
    x->sent_again = false;
    return true;
}
