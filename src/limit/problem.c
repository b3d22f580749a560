#include "limit/problem.h"

#include "base/json_writer.h"

#define PROBLEM_QUOTA "https://iana.org/assignments/http-problem-types#quota-exceeded"
#define PROBLEM_CAPACITY                                                                           \
    "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"

static void put_detail(struct json_writer *json, const struct decision *d, struct marks *marks)
{
    struct text *out = json->out;
    int64_t wait = decision_retry_after(d);

    json_begin_string(json, "detail");
    if (d->verdict == VERDICT_FAILED_CLOSED)
        text_literal(out, "The rate limit cannot be checked at the moment.");
    else if (d->verdict == VERDICT_PROHIBITED)
        text_literal(out, "This client may not use this resource.");
    else if (wait < 0)
        text_literal(out, "The request costs more than its rate limit ever allows.");
    else {
        text_literal(out, "Try again in ");
        decision_put_number(out, d, NUMBER_WAIT, d->results, 0, marks);
        text_put(out, wait == 1 ? SLICE(" second.") : SLICE(" seconds."));
    }
    json_end_string(json);
}

static void put_violated(struct json_writer *json, const struct decision *d)
{
    json_begin(json, "violated-policies", '[');
    for (unsigned i = 0; i < d->result_count; i++) {
        const struct limit_result *r = &d->results[i];
        if (r->verdict == VERDICT_LIMITED || r->verdict == VERDICT_PROHIBITED)
            json_put_text(json, NULL, r->limit->name);
    }
    json_end(json, ']');
}

/* Kept short: no "title", since "type" and "detail" cover it. */
void decision_problem_write(struct text *out, const struct decision *d, unsigned status,
                            struct marks *marks)
{
    struct json_writer json = json_writer_over(out);
    bool quota = d->verdict != VERDICT_FAILED_CLOSED;

    json_begin(&json, NULL, '{');
    json_put_text(&json, "type", quota ? PROBLEM_QUOTA : PROBLEM_CAPACITY);
    json_put_u64(&json, "status", status);
    put_detail(&json, d, marks);
    if (quota)
        put_violated(&json, d);
    json_end(&json, '}');
    text_char(out, '\n');
}
