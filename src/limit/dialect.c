#include "limit/problem.h"

#include "base/json_writer.h"
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

static void put_message(struct json_writer *json, const struct decision *d)
{
    struct text *out = json->out;
    int64_t wait = decision_retry_after(d);

    json_begin_string(json, "message");
    if (d->verdict == VERDICT_PROHIBITED)
        text_literal(out, "This client may not use this resource.");
    else {
        text_literal(out, "Rate limit reached for ");
        text_json(out, slice_of(d->results[d->rejected_by].limit->name));
        if (wait < 0)
            text_literal(out, ": the request costs more than the limit ever allows.");
        else {
            text_literal(out, ". Please try again in ");
            text_i64(out, wait);
            text_put(out, wait == 1 ? SLICE(" second.") : SLICE(" seconds."));
        }
    }
    json_end_string(json);
}

static void openai_body(struct json_writer *json, const struct decision *d)
{
    bool tokens = limit_is_of_usage(d->results[d->rejected_by].limit);

    json_begin(json, NULL, '{');
    json_begin(json, "error", '{');
    put_message(json, d);
    json_put_text(json, "type",
                  is_quota(d) ? "insufficient_quota"
                  : tokens    ? "tokens"
                              : "requests");
    json_put_null(json, "param");
    json_put_text(json, "code", is_quota(d) ? "insufficient_quota" : "rate_limit_exceeded");
}

static void anthropic_body(struct json_writer *json, const struct decision *d)
{
    json_begin(json, NULL, '{');
    json_put_text(json, "type", "error");
    json_begin(json, "error", '{');
    json_put_text(json, "type", "rate_limit_error");
    put_message(json, d);
}

void dialect_body_write(struct text *out, const struct decision *d, enum rejection_dialect dialect)
{
    struct json_writer json = json_writer_over(out);

    (dialect == DIALECT_OPENAI ? openai_body : anthropic_body)(&json, d);
    json_end(&json, '}');
    json_end(&json, '}');
    text_char(out, '\n');
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
