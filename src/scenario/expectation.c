#include "scenario/expectation.h"

#include "base/values.h"
#include "limit/numbers.h"

enum { TEXT_MAX = 2048 };

/* --- Failures --------------------------------------------------------------------------------- */

static const char *kept(struct scenario_result *result, const struct text *text)
{
    return arena_text(&result->arena, text_slice(text));
}

void scenario_fail(struct scenario_result *result, const struct scenario_step *step,
                   const struct outcome *outcome, struct position position, const char *expected,
                   const char *came)
{
    char bytes[TEXT_MAX], words[TEXT_MAX];
    struct text request = text_over(bytes, sizeof bytes), decision = text_over(words, sizeof words);
    struct scenario_failure *failure;

    if (++result->failure_count > FAILURES_MAX)
        return;
    failure = arena_zeroed(&result->arena, 1, sizeof *failure);
    outcome_write_request(&request, outcome, step);
    outcome_write_decision(&decision, outcome);
    *failure = (struct scenario_failure){.position = position,
                                         .number = outcome->number,
                                         .request = kept(result, &request),
                                         .expected = arena_text(&result->arena, slice_of(expected)),
                                         .came = arena_text(&result->arena, slice_of(came)),
                                         .decision = kept(result, &decision)};
    *result->end = failure;
    result->end = &failure->next;
}

/* --- Numbers ---------------------------------------------------------------------------------- */

/* Returns the limit whose numbers are compared; NULL: none applies. */
static const struct limit_result *compared_result(const struct expectation *e,
                                                  const struct outcome *o)
{
    return e->limit ? outcome_result(o, e->limit) : outcome_shown(o);
}

static int64_t charged_cost(const struct expectation *e, const struct outcome *o)
{
    int64_t cost = 0;

    for (unsigned i = 0; o->rule && i < o->rule->limit_count; i++)
        if ((!e->limit || o->rule->limits[i] == e->limit) && o->units[i] > cost)
            cost = o->units[i];
    return cost;
}

/* Rounded up to milliseconds, if what is expected has no µs. */
static int64_t delay_of(const struct expectation *e, const struct outcome *o)
{
    int64_t us = o->kind == REPLAY_DECIDED ? o->decision.delay_us : 0;

    return e->number % 1000 ? us : (us + 999) / 1000 * 1000;
}

static int64_t retry_after_of(const struct outcome *o)
{
    int64_t seconds = o->kind == REPLAY_DECIDED ? decision_retry_after(&o->decision) : -1;

    return seconds < 0 ? EXPECT_NONE : seconds;
}

/* Returns the number that came. */
static int64_t actual_number(const struct expectation *e, const struct outcome *o)
{
    const struct limit_result *r = compared_result(e, o);

    switch (e->kind) {
    case EXPECT_STATUS: return o->status;
    case EXPECT_REMAINING: return r ? r->remaining : EXPECT_NONE;
    case EXPECT_RESET:
        return r && r->limit->kind != LIMIT_CONCURRENCY ? seconds_up(r->reset_us) : EXPECT_NONE;
    case EXPECT_RETRY_AFTER: return retry_after_of(o);
    case EXPECT_COST: return charged_cost(e, o);
    case EXPECT_DELAY: return delay_of(e, o);
    default: return EXPECT_NONE;
    }
}

static void write_number(struct text *out, const struct expectation *e, int64_t number)
{
    text_printf(out, "%s: ", expect_keys[e->kind]);
    if (e->limit)
        text_printf(out, "{ %s: ", e->limit->name);
    if (number == EXPECT_NONE)
        text_literal(out, "none");
    else if (e->kind == EXPECT_DELAY)
        duration_write(out, number);
    else
        text_i64(out, number);
    text_put(out, e->limit ? SLICE(" }") : SLICE(""));
}

static void check_number(const struct expectation *e, const struct scenario_step *step,
                         const struct outcome *o, struct scenario_result *result)
{
    char expected[TEXT_MAX], bytes[TEXT_MAX];
    struct text wanted = text_over(expected, sizeof expected - 1);
    struct text came = text_over(bytes, sizeof bytes - 1);
    int64_t number = actual_number(e, o);

    if (number == e->number)
        return;
    write_number(&wanted, e, e->number);
    write_number(&came, e, number);
    const struct limit_result *r = compared_result(e, o);
    bool by_limit = e->kind == EXPECT_REMAINING || e->kind == EXPECT_RESET;
    if (by_limit && !r)
        text_put(&came,
                 e->limit ? SLICE(", the limit did not apply") : SLICE(", no limit applied"));
    else if (by_limit && !e->limit)
        text_printf(&came, " (limit %s)", r->limit->name);
    expected[wanted.n] = bytes[came.n] = 0;
    scenario_fail(result, step, o, e->position, expected, bytes);
}

/* --- Names ------------------------------------------------------------------------------------ */

/* Returns the name that came; empty: none. */
static struct slice actual_name(enum expect_kind kind, const struct outcome *o)
{
    const struct decision *d = &o->decision;

    switch (kind) {
    case EXPECT_REJECTED_BY:
        return o->kind == REPLAY_DECIDED && d->verdict == VERDICT_LIMITED && d->rejected_by >= 0
                   ? slice_of(d->results[d->rejected_by].limit->name)
                   : SLICE_NONE;
    case EXPECT_RULE: return o->rule ? slice_of(o->rule->name) : SLICE_NONE;
    case EXPECT_UPSTREAM: return o->admitted ? slice_of(o->rule->upstream->name) : SLICE_NONE;
    case EXPECT_CLIENT: return (struct slice){o->client, o->client_size};
    default: return SLICE_NONE;
    }
}

static void check_expected_name(const struct expectation *e, const struct scenario_step *step,
                                const struct outcome *o, struct scenario_result *result)
{
    char expected[TEXT_MAX], bytes[TEXT_MAX];
    struct text wanted = text_over(expected, sizeof expected - 1);
    struct text came = text_over(bytes, sizeof bytes - 1);
    struct slice name = slice_of(e->kind == EXPECT_REJECTED_BY ? e->limit->name : e->name);
    struct slice found = actual_name(e->kind, o);

    if (slice_equal(name, found))
        return;
    text_printf(&wanted, "%s: ", expect_keys[e->kind]);
    text_clean(&wanted, name);
    if (found.n) {
        text_printf(&came, "%s: ", expect_keys[e->kind]);
        text_clean(&came, found);
    } else
        outcome_write(&came, o);
    expected[wanted.n] = bytes[came.n] = 0;
    scenario_fail(result, step, o, e->position, expected, bytes);
}

/* --- Counts ----------------------------------------------------------------------------------- */

/* A count, and the first request that came otherwise. */
static void write_counts(struct text *out, const struct scenario_step *step,
                         const struct step_result *came, bool admitted, const struct outcome *other)
{
    if (step->repeat == 1) {
        outcome_write(out, other);
        return;
    }
    text_printf(out, "%s: %llu of %lld", admitted ? "admitted" : "rejected",
                (unsigned long long)(admitted ? came->admitted : came->rejected),
                (long long)step->repeat);
    if (other->number) {
        text_printf(out, "; request %llu is the first that was ",
                    (unsigned long long)other->number);
        outcome_write(out, other);
    }
}

static void check_count(const struct expectation *e, const struct scenario_step *step,
                        const struct step_result *came, struct scenario_result *result)
{
    bool admitted = e->kind == EXPECT_ADMITTED;
    const struct outcome *other = admitted ? &came->first_rejected : &came->first_admitted;
    uint64_t count = admitted ? came->admitted : came->rejected;
    uint64_t wanted = (uint64_t)(e->number == EXPECT_ALL ? step->repeat : e->number);
    char expected[64], bytes[TEXT_MAX];
    struct text out = text_over(bytes, sizeof bytes - 1);

    if (count == wanted)
        return;
    if (e->number == EXPECT_ALL)
        snprintf(expected, sizeof expected, "%s", expect_keys[e->kind]);
    else
        snprintf(expected, sizeof expected, "%s: %lld", expect_keys[e->kind], (long long)e->number);
    write_counts(&out, step, came, admitted, other->number ? other : &came->last);
    bytes[out.n] = 0;
    scenario_fail(result, step, other->number ? other : &came->last, e->position, expected, bytes);
}

/* --- All -------------------------------------------------------------------------------------- */

void expectations_check(const struct scenario_step *step, const struct step_result *came,
                        struct scenario_result *result)
{
    for (const struct expectation *e = step->expected; e; e = e->next) {
        switch (e->kind) {
        case EXPECT_ADMITTED:
        case EXPECT_REJECTED: check_count(e, step, came, result); break;
        case EXPECT_REJECTED_BY:
        case EXPECT_RULE:
        case EXPECT_UPSTREAM:
        case EXPECT_CLIENT: check_expected_name(e, step, &came->last, result); break;
        default: check_number(e, step, &came->last, result);
        }
    }
}
