#include "limit/problem.h"

#define PROBLEM_QUOTA "https://iana.org/assignments/http-problem-types#quota-exceeded"
#define PROBLEM_CAPACITY                                                                           \
    "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"

static void detail_member(struct text *out, const struct decision *d, struct marks *marks)
{
    int64_t wait = decision_retry_after(d);

    text_literal(out, "\"detail\":\"");
    if (d->verdict == VERDICT_FAILED_CLOSED)
        text_literal(out, "The rate limit cannot be checked at the moment.");
    else if (d->verdict == VERDICT_PROHIBITED)
        text_literal(out, "This client may not use this resource.");
    else if (wait < 0)
        text_literal(out, "The request costs more than its rate limit ever allows.");
    else {
        text_literal(out, "Try again in ");
        decision_put_number(out, d, NUMBER_WAIT, 0, 0, marks);
        text_put(out, wait == 1 ? SLICE(" second.") : SLICE(" seconds."));
    }
    text_literal(out, "\"");
}

static void violated_member(struct text *out, const struct decision *d)
{
    bool first = true;

    text_literal(out, ",\"violated-policies\":[");
    for (unsigned i = 0; i < d->result_count; i++) {
        const struct limit_result *r = &d->results[i];
        if (r->verdict != VERDICT_LIMITED && r->verdict != VERDICT_PROHIBITED)
            continue;
        if (!first)
            text_char(out, ',');
        first = false;
        text_char(out, '"');
        text_json(out, slice_of(r->limit->name));
        text_char(out, '"');
    }
    text_char(out, ']');
}

/* Kept short: no "title", since "type" and "detail" cover it. */
void decision_problem_write_marked(struct text *out, const struct decision *d, unsigned status,
                                   struct marks *marks)
{
    bool quota = d->verdict != VERDICT_FAILED_CLOSED;

    text_put(out, quota ? SLICE("{\"type\":\"" PROBLEM_QUOTA "\",\"status\":")
                        : SLICE("{\"type\":\"" PROBLEM_CAPACITY "\",\"status\":"));
    text_u64(out, status);
    text_char(out, ',');
    detail_member(out, d, marks);
    if (quota)
        violated_member(out, d);
    text_literal(out, "}\n");
}

void decision_problem_write(struct text *out, const struct decision *d, unsigned status)
{
    decision_problem_write_marked(out, d, status, NULL);
}
