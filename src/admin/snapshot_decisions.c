#include "admin/snapshot_parts.h"

/* Writes "decisions": allowed and limited always, the others if they have occurred. Every count is
 * read, so that the history has the same order in every snapshot. */
static void decisions(struct snapshot *s, enum worker_table table, unsigned row, unsigned verdicts)
{
    json_begin(&s->json, "decisions", '{');
    for (unsigned v = 0; v < verdicts; v++) {
        uint64_t total = metric_row_sum(s->view, table, row, v);
        if (total || v == VERDICT_ALLOWED || v == VERDICT_LIMITED)
            snapshot_counter(s, verdict_label[v], total);
        else
            (void)snapshot_increase(s->history, total);
    }
    json_end(&s->json, '}');
}

static void rules(struct snapshot *s)
{
    const struct policy *policy = s->view->policy;

    json_begin(&s->json, "rules", '[');
    for (unsigned r = 0; r < policy->rule_count && r < SNAPSHOT_RULES_MAX; r++) {
        const struct rule *rule = &policy->rules[r];
        json_begin(&s->json, NULL, '{');
        json_put_text(&s->json, "name", rule->name);
        json_begin(&s->json, "limits", '[');
        for (unsigned i = 0; i < rule->limit_count; i++)
            json_put_text(&s->json, NULL, rule->limits[i]->name);
        json_end(&s->json, ']');
        decisions(s, TABLE_RULES, rule->row, VERDICT_NOT_CHARGED);
        json_end(&s->json, '}');
    }
    json_end(&s->json, ']');
}

static void priorities(struct snapshot *s)
{
    const struct policy *policy = s->view->policy;

    json_begin(&s->json, "priorities", '[');
    for (unsigned p = 0; p < policy->priority_count; p++) {
        const struct priority *priority = &policy->priorities[p];
        json_begin(&s->json, NULL, '{');
        json_put_text(&s->json, "name", priority->name);
        json_put_number(&s->json, "share", (double)priority->share / (double)SHARE_WHOLE);
        decisions(s, TABLE_PRIORITIES, priority->row, VERDICT_NOT_CHARGED);
        json_end(&s->json, '}');
    }
    json_end(&s->json, ']');
}

/* The numbers that limits of the policy and of descriptors have. */
static void put_limit_numbers(struct snapshot *s, const struct limit *limit)
{
    json_put_text(&s->json, "name", limit->name);
    json_put_text(&s->json, "script", limit->script);
    json_put_i64(&s->json, "limit", limit->limit);
    if (limit->kind == LIMIT_CONCURRENCY)
        json_put_null(&s->json, "period_seconds");
    else
        json_put_seconds(&s->json, "period_seconds", limit->period_us);
    json_put_bool(&s->json, "shadow", limit->enforce == 0);
}

/* One `rate_limit` of descriptors and its decisions. */
struct counted {
    const struct limit *limit;
    uint64_t total[VERDICT_COUNT], all;
    int64_t more[VERDICT_COUNT], lately; /* the results of snapshot_increase(), and their sum */
};

static struct counted count_rate_limit(struct snapshot *s, const struct limit *limit)
{
    struct counted c = {.limit = limit};

    for (unsigned v = 0; v < VERDICT_COUNT; v++) {
        c.total[v] = metric_row_sum(s->view, TABLE_LIMITS, limit->row, v);
        c.more[v] = snapshot_increase(s->history, c.total[v]);
        c.all += c.total[v];
        c.lately += c.more[v] > 0 ? c.more[v] : 0;
    }
    return c;
}

static bool is_busier(const struct counted *a, const struct counted *b)
{
    return a->lately != b->lately ? a->lately > b->lately : a->all > b->all;
}

/* Policies may have thousands of them: writes those with decisions, and of these the busiest. */
static void rate_limits(struct snapshot *s)
{
    const struct rate_limit_service *service = &s->view->policy->rate_limit_service;
    struct counted busiest[SNAPSHOT_RATE_LIMITS_MAX + 1];
    unsigned count = 0;

    for (unsigned i = 0; i < service->rate_limit_count; i++) {
        struct counted c = count_rate_limit(s, service->rate_limits[i]);
        unsigned at = count;
        if (!c.all)
            continue;
        for (; at && is_busier(&c, &busiest[at - 1]); at--)
            busiest[at] = busiest[at - 1];
        busiest[at] = c;
        count += count < SNAPSHOT_RATE_LIMITS_MAX;
    }
    for (unsigned i = 0; i < count; i++) {
        const struct counted *c = &busiest[i];
        json_begin(&s->json, NULL, '{');
        put_limit_numbers(s, c->limit);
        json_begin(&s->json, "decisions", '{');
        for (unsigned v = 0; v < VERDICT_COUNT; v++)
            if (c->total[v] || v == VERDICT_ALLOWED || v == VERDICT_LIMITED)
                snapshot_put_counter(s, verdict_label[v], c->total[v], c->more[v]);
        json_end(&s->json, '}');
        json_end(&s->json, '}');
    }
}

static void limits(struct snapshot *s)
{
    const struct policy *policy = s->view->policy;

    json_begin(&s->json, "limits", '[');
    for (unsigned l = 0; l < policy->limit_count; l++) {
        const struct limit *limit = &policy->limits[l];
        json_begin(&s->json, NULL, '{');
        put_limit_numbers(s, limit);
        decisions(s, TABLE_LIMITS, limit->row, VERDICT_COUNT);
        uint64_t units = metric_row_sum(s->view, TABLE_LIMITS, limit->row, UNITS_COLUMN);
        if (limit->own_cost)
            snapshot_counter(s, "units", units);
        else
            (void)snapshot_increase(s->history, units);
        json_end(&s->json, '}');
    }
    rate_limits(s);
    json_end(&s->json, ']');
}

void snapshot_decisions(struct snapshot *s)
{
    rules(s);
    priorities(s);
    limits(s);
}
