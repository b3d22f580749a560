#include "scenario/outcome.h"

#include <time.h>

#include "base/values.h"
#include "limit/header_families.h"

/* Clients that are unlimited or prohibited have no numbers. */
static bool has_numbers(const struct outcome *o)
{
    return o->kind == REPLAY_DECIDED && o->decision.verdict != VERDICT_UNLIMITED &&
           o->decision.verdict != VERDICT_PROHIBITED;
}

const struct limit_result *outcome_shown(const struct outcome *o)
{
    return has_numbers(o) && o->decision.result_count ? decision_shown(&o->decision) : NULL;
}

const struct limit_result *outcome_result(const struct outcome *o, const struct limit *limit)
{
    for (unsigned i = 0; has_numbers(o) && i < o->decision.result_count; i++)
        if (o->decision.results[i].limit && limit_is(o->decision.results[i].limit, limit))
            return &o->decision.results[i];
    return NULL;
}

static void write_time(struct text *out, int64_t time_us)
{
    time_t seconds = (time_t)(time_us / 1000000);
    int64_t part = time_us % 1000000;
    char bytes[32];
    struct tm tm;

    gmtime_r(&seconds, &tm);
    strftime(bytes, sizeof bytes, "%Y-%m-%dT%H:%M:%S", &tm);
    text_put(out, slice_of(bytes));
    if (part % 1000)
        text_printf(out, ".%06d", (int)part);
    else if (part)
        text_printf(out, ".%03d", (int)(part / 1000));
    text_char(out, 'Z');
}

void outcome_write_request(struct text *out, const struct outcome *o,
                           const struct scenario_step *step)
{
    enum { TARGET_SHOWN = 100 };
    bool long_one = step->target.n > TARGET_SHOWN;

    text_put(out, step->method);
    text_char(out, ' ');
    text_clean(out, (struct slice){step->target.p, long_one ? TARGET_SHOWN : step->target.n});
    text_put(out, long_one ? SLICE("...") : SLICE(""));
    text_literal(out, " of ");
    text_clean(out, outcome_client(o));
    text_literal(out, " at ");
    write_time(out, o->now_us);
}

static void write_rejection(struct text *out, const struct outcome *o)
{
    const struct decision *d = &o->decision;

    text_printf(out, "rejected with %u", o->status);
    if (d->verdict == VERDICT_PROHIBITED)
        text_literal(out, ": the quota of the client is 0");
    else if (d->verdict == VERDICT_FAILED_CLOSED)
        text_literal(out, ": the script of a limit has failed");
    else if (d->rejected_by >= 0)
        text_printf(out, " by %s", d->results[d->rejected_by].limit->name);
}

void outcome_write(struct text *out, const struct outcome *o)
{
    if (o->kind != REPLAY_DECIDED)
        text_printf(out, "%s with %u: %s", o->kind == REPLAY_BLOCKED ? "blocked" : "refused",
                    o->status, o->why);
    else if (!o->admitted)
        write_rejection(out, o);
    else if (o->decision.verdict == VERDICT_UNLIMITED && o->rule->limit_count)
        text_literal(out, "admitted, the client is unlimited");
    else
        text_literal(out, "admitted");
}

static void write_result(struct text *out, const struct limit_result *r)
{
    text_printf(out, "; %s: %lld of %lld left", r->limit->name, (long long)r->remaining,
                (long long)r->capacity);
    if (r->verdict == VERDICT_SHADOW)
        text_literal(out, ", would reject (shadow)");
    if (r->retry_after_us > 0) {
        text_literal(out, ", retry after ");
        duration_write(out, r->retry_after_us);
    } else if (r->retry_after_us < 0)
        text_literal(out, ", never admits this cost");
}

void outcome_write_decision(struct text *out, const struct outcome *o)
{
    outcome_write(out, o);
    if (!o->rule)
        return;
    text_printf(out, "; rule %s", o->rule->name);
    if (o->rule->limit_count == 0)
        text_literal(out, ", which has no limits");
    for (unsigned i = 0; has_numbers(o) && i < o->decision.result_count; i++)
        if (o->decision.results[i].limit)
            write_result(out, &o->decision.results[i]);
    if (o->decision.delay_us > 0) {
        text_literal(out, "; delayed by ");
        duration_write(out, o->decision.delay_us);
    }
}
