/* granted.c - a request header is written before the decision is known, so its values have a fixed
 * width; a response of the decision listener is written afterwards. */
#include "proxy/granted.h"

#include "proxy/generation.h"

enum { DIGITS = 15 }; /* of the largest limit */

/* Right-aligned; the spaces are optional whitespace (RFC 9110 section 5.5). */
static void put_number(char *at, int64_t value)
{
    memset(at, ' ', DIGITS);
    for (char *p = at + DIGITS; p > at && (value > 0 || p == at + DIGITS); value /= 10)
        *--p = (char)('0' + value % 10);
}

/* Returns what the request costs in the rule's limit `i`. */
static int64_t full_cost(const struct exchange *x, unsigned i)
{
    const struct rule *rule = x->route.rule;
    return x->limits.stated_cost ? x->limits.stated_cost : rule_cost_in(rule, rule->limits[i]);
}

void granted_append(struct exchange *x, struct text *head)
{
    const struct rule *rule = x->route.rule;

    head->n -= 2; /* the empty line */
    for (unsigned i = 0; i < rule->limit_count; i++) {
        const struct limit *limit = rule->limits[i];
        char digits[DIGITS];
        x->limits.granted_at[i] = 0;
        if (!limit->granted_header)
            continue;
        put_number(digits, full_cost(x, i));
        text_put(head, slice_of(limit->granted_header));
        text_literal(head, ": ");
        x->limits.granted_at[i] = (uint32_t)head->n;
        text_bytes(head, digits, sizeof digits);
        text_literal(head, "\r\n");
    }
    text_literal(head, "\r\n");
}

/* Returns the units that the rule's limit `i` grants; -1: it granted none itself, since the client
 * is unlimited, the limit is a shadow limit, or Redis is unavailable. */
static int64_t result_of_limit(const struct exchange *x, unsigned i)
{
    const struct decision *d = &x->decision_request.decision;

    for (unsigned k = 0; k < d->result_count; k++)
        if (d->results[k].limit->base == x->route.rule->limits[i]->index &&
            d->results[k].verdict == VERDICT_ALLOWED)
            return d->results[k].granted;
    return -1;
}

void granted_set(struct exchange *x)
{
    for (unsigned i = 0; i < x->route.rule->limit_count; i++) {
        int64_t units = x->limits.granted_at[i] ? result_of_limit(x, i) : -1;
        if (units >= 0)
            put_number(x->request.head->bytes + x->request.head->start + x->limits.granted_at[i],
                       units);
    }
}

void granted_fields_write(struct text *out, const struct exchange *x)
{
    for (unsigned i = 0; i < x->route.rule->limit_count; i++) {
        const char *name = x->route.rule->limits[i]->granted_header;
        int64_t units = name ? result_of_limit(x, i) : -1;
        if (!name)
            continue;
        text_put(out, slice_of(name));
        text_literal(out, ": ");
        text_i64(out, units >= 0 ? units : full_cost(x, i));
        text_literal(out, "\r\n");
    }
}
