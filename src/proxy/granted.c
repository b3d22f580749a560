/* granted.c - the head is written before the decision is known, so values have a fixed width. */
#include "proxy/granted.h"

#include "proxy/generation.h"

enum { DIGITS = 10 }; /* of the largest limit */

/* Right-aligned; the spaces are optional whitespace (RFC 9110 section 5.5). */
static void put_number(char *at, int64_t value)
{
    memset(at, ' ', DIGITS);
    for (char *p = at + DIGITS; p > at && (value > 0 || p == at + DIGITS); value /= 10)
        *--p = (char)('0' + value % 10);
}

void granted_append(struct exchange *x, struct text *head, int64_t cost)
{
    const struct rule *rule = x->rule;

    if (!x->policy->has_granted_headers || head->failed)
        return;
    head->n -= 2; /* the empty line */
    for (unsigned i = 0; i < rule->limit_count; i++) {
        const struct limit *limit = rule->limits[i];
        char digits[DIGITS];
        x->granted_at[i] = 0;
        if (!limit->granted_header)
            continue;
        put_number(digits, cost ? cost : rule_cost_in(rule, limit));
        text_put(head, slice_of(limit->granted_header));
        text_literal(head, ": ");
        x->granted_at[i] = (uint32_t)head->n;
        text_bytes(head, digits, sizeof digits);
        text_literal(head, "\r\n");
    }
    text_literal(head, "\r\n");
}

void granted_set(struct exchange *x)
{
    const struct decision *d = &x->decision_request.decision;

    if (!x->policy->has_granted_headers)
        return;
    for (unsigned i = 0; i < x->rule->limit_count; i++)
        for (unsigned k = 0; k < d->result_count && x->granted_at[i]; k++)
            if (d->results[k].limit->base == x->rule->limits[i]->index &&
                d->results[k].verdict == VERDICT_ALLOWED)
                put_number(x->head->bytes + x->head->start + x->granted_at[i],
                           d->results[k].granted);
}
