#include "limit/dialect.h"

#include "limit/numbers.h"

enum {
    RETRY_SECONDS_MAX = 60, /* clients that sleep longer would better tell their users */
    QUOTA_SECONDS = 86400   /* a longer wait reads like a quota that is used up */
};

/* Returns true if waiting is of no use soon: a quota of 0, a cost above the limit, a long wait. */
static bool is_quota(const struct decision *d)
{
    int64_t wait = decision_retry_after(d);

    return wait < 0 || wait > QUOTA_SECONDS;
}

static void message(struct text *out, const struct decision *d)
{
    int64_t wait = decision_retry_after(d);

    if (d->verdict == VERDICT_PROHIBITED) {
        text_literal(out, "This client may not use this resource.");
        return;
    }
    text_literal(out, "Rate limit reached for ");
    text_json(out, slice_of(d->results[d->rejected_by].limit->name));
    if (wait < 0) {
        text_literal(out, ": the request costs more than the limit ever allows.");
        return;
    }
    text_literal(out, ". Please try again in ");
    text_i64(out, wait);
    text_put(out, wait == 1 ? SLICE(" second.") : SLICE(" seconds."));
}

static void openai_body(struct text *out, const struct decision *d)
{
    bool tokens = limit_is_of_usage(d->results[d->rejected_by].limit);

    text_literal(out, "{\"error\":{\"message\":\"");
    message(out, d);
    text_literal(out, "\",\"type\":\"");
    text_put(out, is_quota(d) ? SLICE("insufficient_quota")
                  : tokens    ? SLICE("tokens")
                              : SLICE("requests"));
    text_literal(out, "\",\"param\":null,\"code\":\"");
    text_put(out, is_quota(d) ? SLICE("insufficient_quota") : SLICE("rate_limit_exceeded"));
    text_literal(out, "\"}}\n");
}

static void anthropic_body(struct text *out, const struct decision *d)
{
    text_literal(out,
                 "{\"type\":\"error\",\"error\":{\"type\":\"rate_limit_error\",\"message\":\"");
    message(out, d);
    text_literal(out, "\"}}\n");
}

void dialect_body_write(struct text *out, const struct decision *d, enum rejection_dialect dialect)
{
    (dialect == DIALECT_OPENAI ? openai_body : anthropic_body)(out, d);
}

void dialect_fields_write(struct text *out, const struct decision *d)
{
    int64_t wait = decision_retry_after(d);

    if (wait >= 0) {
        int64_t us = d->results[d->rejected_by].retry_after_us + d->jitter_us;
        text_literal(out, "retry-after-ms: ");
        text_i64(out, us > 0 ? (us + 999) / 1000 : 1);
        text_literal(out, "\r\n");
    }
    text_put(out, wait >= 0 && wait <= RETRY_SECONDS_MAX ? SLICE("x-should-retry: true\r\n")
                                                         : SLICE("x-should-retry: false\r\n"));
}
