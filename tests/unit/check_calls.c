/* check_calls.c - calls of the rate limit service with a real Redis: charged as one or each by
 * itself, with quota_mode, refunds, grants and more limits than a rule has; exact under
 * concurrency, and by on_failure without Redis. A model decides random calls.
 *
 *   STEPS=100000 SEED=7 check_calls   calls of the model (default 2000), and seed */
#include <check.h>
#include <signal.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "config/policy_file.h"
#include "fault/redis_rig.h"
#include "fault/test_clock.h"
#include "limit/call_decision.h"
#include "limit/compose.h"
#include "limit/denials.h"
#include "limit/failed_limits.h"
#include "limit/grants.h"
#include "limit/limiter_parts.h"
#include "limit/sub_op.h"
#include "limit/verdict.h"
#include "run_suite.h"

enum { LIMITERS_MAX = 2, CALLS_MAX = 256 };

/* A call in the test's own memory. */
struct test_call {
    struct call_request request;
    bool decided;
};

static struct event_base *base;
static struct real_redis real;
static struct policy *policy;
static struct fallback *fallback;
static char *script;
static struct limiter *limiters[LIMITERS_MAX];
static struct limiter_stats stats[LIMITERS_MAX];
static unsigned limiter_count, under_way;
static const char *on_failure;

#define ENTRIES                                                                                    \
    "      descriptors:\n"                                                                         \
    "        - { key: k, rate_limit: { unit: year, requests_per_unit: 3 } }\n"                     \
    "        - { key: k, value: none, rate_limit: { unit: year, requests_per_unit: 0 } }\n"        \
    "        - { key: q, quota_mode: true, metadata: { a: 1 },\n"                                  \
    "            rate_limit: { unit: year, requests_per_unit: 2 } }\n"                             \
    "        - { key: sh, shadow_mode: true, rate_limit: { unit: year, requests_per_unit: 2 } }\n" \
    "        - { key: free, rate_limit: { unlimited: true } }\n"                                   \
    "        - { key: qfree, quota_mode: true, rate_limit: { unlimited: true } }\n"                \
    "        - { key: both, limits: [ tight, wide ] }\n"                                           \
    "        - { key: f, limits: [ fails, wide ] }\n"                                              \
    "        - { key: fq, quota_mode: true, limits: [ fails, wide ] }\n"                           \
    "        - { key: fsh, shadow_mode: true, limits: [ fails, tight ] }\n"                        \
    "        - { key: alone, limits: [ fails ] }\n"                                                \
    "        - { key: aloneq, quota_mode: true, limits: [ fails ] }\n"                             \
    "        - { key: big, limits: [ fails-later, wide ] }\n"                                      \
    "        - { key: bigq, quota_mode: true, limits: [ fails-later, wide ] }\n"                   \
    "        - { key: one, value: \"a*\", share_threshold: true,\n"                                \
    "            rate_limit: { unit: year, requests_per_unit: 2 } }\n"

/* The limits with this script always fail. */
static void write_script(char path[128])
{
    snprintf(path, 128, "%s/fails.lua", real.directory);
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    fputs("return function() error('broken on purpose') end\n", file);
    fclose(file);
}

static void load(void)
{
    char path[128];
    char text[ADDRESS_TEXT_MAX], *yaml, *said;
    const char *lua_dir = getenv("WEIR_LUA_DIR") ? getenv("WEIR_LUA_DIR") : "lua";
    size_t size;
    FILE *report = open_memstream(&said, &size);

    write_script(path);
    ck_assert_int_gt(asprintf(&yaml,
                              "redis: { address: \"%s\", timeout: 10s, on_failure: %s }\n"
                              "limits:\n"
                              "  tight: { script: gcra, limit: 2, period: 366d }\n"
                              "  wide: { script: token_bucket, limit: 5, period: 366d }\n"
                              "  fails: { script: \"%s\", limit: 2, period: 366d }\n"
                              "  fails-later: { script: \"%s\", limit: 7, period: 366d }\n"
                              "rate_limit_service:\n"
                              "  listen: 127.0.0.1:0\n"
                              "  domains:\n"
                              "    all:\n" ENTRIES "    every:\n      charge: every\n" ENTRIES,
                              address_format(&real.address, text), on_failure, path, path),
                     0);
    policy = policy_load_text("test.yaml", slice_of(yaml), lua_dir, report);
    script = policy ? compose_driver(policy, lua_dir, report) : NULL;
    fclose(report);
    ck_assert_msg(script != NULL, "%s", said);
    free(said);
    free(yaml);
}

/* --- Driving ---------------------------------------------------------------------------------- */

static void flush_all(void *context)
{
    (void)context;
    for (unsigned i = 0; i < limiter_count; i++)
        limiter_flush(limiters[i]);
}

static bool all_ready(void *context)
{
    (void)context;
    for (unsigned i = 0; i < limiter_count; i++)
        if (!limiter_redis_ready(limiters[i]))
            return false;
    return true;
}

static bool none_under_way(void *context)
{
    (void)context;
    return under_way == 0;
}

static void set_up(void)
{
    signal(SIGPIPE, SIG_IGN);
    ck_assert_int_eq(log_open("/dev/null"), 0);
    base = event_base_new();
    on_failure = "local";
    under_way = 0;
}

static void start(unsigned count, bool with_redis)
{
    if (with_redis)
        real_redis_start(&real);
    else
        real_redis_prepare(&real);
    load();
    fallback = fallback_new(10000);
    for (limiter_count = 0; limiter_count < count; limiter_count++) {
        ck_assert(counter_table_grow(&stats[limiter_count].by_limit, 64));
        limiters[limiter_count] =
            limiter_new(base, policy, fallback, slice_of(script), &stats[limiter_count]);
        ck_assert_ptr_nonnull(limiters[limiter_count]);
    }
    if (with_redis)
        rig_run_until(base, flush_all, all_ready, NULL);
}

static void tear_down(void)
{
    test_clock_stand(false);
    while (limiter_count)
        limiter_free(limiters[--limiter_count]);
    fallback_free(fallback);
    policy_drop(policy);
    free(script);
    if (real.pid)
        real_redis_stop(&real);
    else
        rig_remove_directory(real.directory);
    event_base_free(base);
}

static void on_decided(struct call_request *request)
{
    struct test_call *call = (struct test_call *)request;

    ck_assert(!call->decided);
    call->decided = true;
    under_way--;
}

/* Begins a call with "key=value" descriptors of one entry, separated by blanks: "k=a 2" costs 2,
 * "k=a -2" refunds 2, "k=a 0" asks, and "k=a @5" states 5 per year. */
static void begin(struct test_call *call, unsigned limiter, const char *domain, const char *text)
{
    static char copy[16384];
    static struct descriptor_entry entries[DESCRIPTORS_MAX];
    static struct call_descriptor descriptors[DESCRIPTORS_MAX];
    struct rate_limit_call message = {.domain = slice_of(domain), .descriptors = descriptors};

    snprintf(copy, sizeof copy, "%s", text);
    for (char *at = strtok(copy, " "); at; at = strtok(NULL, " ")) {
        char *equals = strchr(at, '=');
        struct call_descriptor *given = descriptors + message.count - !equals;
        if (equals) {
            entries[message.count] =
                (struct descriptor_entry){{at, (size_t)(equals - at)}, slice_of(equals + 1)};
            descriptors[message.count] =
                (struct call_descriptor){.entries = &entries[message.count], .entry_count = 1};
            message.count++;
        } else if (*at == '@') {
            given->has_limit = true;
            given->unit = UNIT_YEAR;
            given->per_unit = (uint32_t)atoi(at + 1);
        } else {
            given->has_hits = true;
            given->refunds = *at == '-';
            given->hits = (uint64_t)abs(atoi(at));
        }
    }
    memset(&call->request.decision, 0xa5, sizeof call->request.decision);
    call_request_init(&call->request, on_decided);
    call->decided = false;
    under_way++;
    if (limiter_decide_call(limiters[limiter], &message, &call->request) == DECIDED_NOW)
        on_decided(&call->request);
}

static struct test_call last;

/* The second one is on its way. */
static bool has_two_ops(void *context)
{
    (void)context;
    return last.request.op_count == 2;
}

static const struct call_decision *decide(const char *domain, const char *text)
{
    call_request_end(&last.request);
    begin(&last, 0, domain, text);
    rig_run_until(base, flush_all, none_under_way, NULL);
    return &last.request.decision;
}

/* The results as text: "OK 2,OVER 0,- ". */
static const char *results_of(const struct call_decision *d)
{
    static char text[4096];
    size_t n = 0;

    n += (size_t)snprintf(text, sizeof text, "%s:", verdict_label[d->verdict]);
    for (unsigned i = 0; i < d->count; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, d->results[i].has_limit ? " %s%u" : " %s-",
                              d->results[i].over ? "over " : "", d->results[i].remaining);
    return text;
}

/* Decides a call of the domain. A macro, so that a failure names the line of the test. */
#define ck_assert_call(domain, text, results)                                                      \
    ck_assert_str_eq(results_of(decide(domain, text)), results)

/* --- charge: all ------------------------------------------------------------------------------ */

START_TEST(all_are_charged_or_none)
{
    start(1, true);
    ck_assert_call("all", "k=a", "allowed: 2");
    ck_assert_call("all", "k=a k=b", "allowed: 1 2");
    ck_assert_call("all", "k=a k=a", "limited: 1 over 0"); /* a descriptor that stands twice */
    ck_assert_call("all", "k=a 2 k=b", "limited: over 0 2");
    ck_assert_call("all", "k=a k=none k=b", "limited: 1 over 0 2");
    ck_assert_call("all", "k=a k=b", "allowed: 0 1");
    ck_assert_call("all", "k=a k=b", "limited: over 0 1");
    ck_assert_call("all", "free=x other=y k=b", "allowed: - - 0");
    ck_assert_call("unknown", "k=a k=b", "allowed: - -");
    ck_assert_ptr_null(decide("unknown", "k=a")->domain);
}
END_TEST

START_TEST(costs_refunds_and_questions)
{
    start(1, true);
    ck_assert_call("all", "k=a 3", "allowed: 0");
    ck_assert_call("all", "k=a 0", "limited: over 0");
    ck_assert_call("all", "k=a -2", "allowed: 2");
    ck_assert_call("all", "k=a 0", "allowed: 2");
    ck_assert_call("all", "k=a 0 k=a 2", "allowed: 2 0");
    ck_assert_call("all", "k=a -9", "allowed: 3");
    ck_assert_call("all", "k=none 0", "limited: over 0");
    ck_assert_call("all", "k=none -1", "allowed: 0");
    ck_assert_call("all", "k=a 4000000000", "limited: over 0");
}
END_TEST

START_TEST(stated_limits_replace_those_of_the_policy)
{
    start(1, true);
    ck_assert_call("all", "k=none @2", "allowed: 1");
    ck_assert_uint_eq(last.request.decision.results[0].per_unit, 2);
    ck_assert_uint_eq(last.request.decision.results[0].unit, UNIT_YEAR);
    ck_assert_call("all", "unmatched=x @1", "allowed: 0");
    ck_assert_call("all", "unmatched=x @1", "limited: over 0");
    ck_assert_call("all", "unmatched=x @0", "limited: over 0");
    ck_assert_call("all", "free=x @1", "allowed: 0");
    ck_assert_call("all", "sh=x @1 2", "limited: over 0");
    ck_assert_call("unknown", "k=none @0", "allowed: -");
}
END_TEST

START_TEST(several_limits_of_a_descriptor)
{
    start(1, true);
    ck_assert_call("all", "both=a", "allowed: 1");
    ck_assert(slice_equal(last.request.decision.results[0].name, SLICE("tight")));
    ck_assert_call("all", "both=a", "allowed: 0");
    ck_assert_call("all", "both=a", "limited: over 0");
    ck_assert_int_gt(last.request.decision.results[0].reset_us, 0);
    ck_assert_call("every", "both=a", "allowed: 1");
    ck_assert_call("every", "both=a 2", "limited: over 0");
    ck_assert_call("every", "both=a", "limited: over 0"); /* wide has 4 of 5 */
    ck_assert_call("every", "both=a 2", "limited: over 0");
}
END_TEST

START_TEST(a_shadow_limit_never_rejects)
{
    start(1, true);
    ck_assert_call("all", "sh=a 2 k=a", "allowed: 0 2");
    ck_assert_call("all", "sh=a k=a", "allowed: 0 1");
    ck_assert_call("all", "sh=a", "allowed: 0");
    ck_assert_call("every", "sh=a 3", "allowed: 0");
}
END_TEST

START_TEST(values_of_a_shared_pattern_have_one_count)
{
    start(1, true);
    ck_assert_call("all", "one=ab", "allowed: 1");
    ck_assert_call("all", "one=ac", "allowed: 0");
    ck_assert_call("all", "one=ad", "limited: over 0");
}
END_TEST

/* --- quota_mode ------------------------------------------------------------------------------- */

START_TEST(quotas_reject_only_together)
{
    start(1, true);
    ck_assert_call("all", "q=a 2", "allowed: 0");
    ck_assert_call("all", "q=a q=b", "allowed: over 0 1");
    ck_assert_uint_eq(last.request.decision.metadata_count, 1);
    ck_assert_call("all", "q=a q=b", "allowed: over 0 0");
    ck_assert_call("all", "q=a q=b", "limited: over 0 over 0");
    ck_assert_uint_eq(last.request.decision.metadata_count, 0);
    ck_assert_call("all", "q=a k=a", "limited: over 0 3"); /* the only one with quota_mode */
    ck_assert_call("all", "q=a q=c k=a", "allowed: over 0 1 2");
    ck_assert_call("all", "q=a q=c k=none", "limited: over 0 1 over 0");
    ck_assert_call("all", "q=a q=b qfree=x", "allowed: over 0 over 0 -");
    ck_assert_call("all", "q=c k=a", "allowed: 0 1");
    ck_assert_call("every", "q=a 3", "limited: over 0");
    ck_assert_call("every", "q=a q=b", "allowed: over 0 1");
    ck_assert_call("all", "q=x q=y", "allowed: 1 1");
    ck_assert_uint_eq(last.request.decision.metadata_count, 1); /* of their one entry */
}
END_TEST

/* --- Remembered denials ----------------------------------------------------------------------- */

static uint64_t remembered(void)
{
    return counter_read(&stats[0].remembered_denials);
}

/* A refund concerns the descriptors that it names, and no other client. */
START_TEST(a_refund_forgets_the_denials_of_its_descriptors)
{
    static const char *const domains[] = {"all", "every"};

    start(1, true);
    test_clock_stand(true); /* denials are remembered for 1 s */
    for (unsigned i = 0; i < COUNT_OF(domains); i++) {
        decide("all", "k=a 3 k=b 3");
        ck_assert_call("all", "k=a", "limited: over 0");
        ck_assert_call("all", "k=b", "limited: over 0");
        uint64_t before = remembered();
        ck_assert_call("all", "k=b", "limited: over 0");
        ck_assert_uint_eq(remembered(), before + 1);
        decide(domains[i], "k=x -1 k=a -1"); /* the keys of both domains differ */
        ck_assert_call("all", "k=b", "limited: over 0");
        ck_assert_uint_eq(remembered(), before + 2);
        ck_assert_call("all", "k=a", i == 0 ? "allowed: 0" : "limited: over 0");
        real_redis_do(&real, "FLUSHALL");
        denials_forget_all();
        test_clock_advance_us(1); /* later replies are remembered again */
    }
}
END_TEST

START_TEST(a_rejected_refund_forgets_nothing)
{
    start(1, true);
    test_clock_stand(true); /* denials are remembered for 1 s */
    ck_assert_call("all", "k=a 3", "allowed: 0");
    ck_assert_call("all", "k=a", "limited: over 0");
    uint64_t before = remembered();
    ck_assert_call("all", "k=a -1 k=none", "limited: 0 over 0");
    ck_assert_call("all", "k=a", "limited: over 0");
    ck_assert_uint_eq(remembered(), before + 1);
}
END_TEST

/* --- charge: every ---------------------------------------------------------------------------- */

START_TEST(every_descriptor_is_charged)
{
    start(1, true);
    ck_assert_call("every", "k=a 2 k=b", "allowed: 1 2");
    ck_assert_call("every", "k=a 2 k=b", "limited: over 0 1"); /* a has 4 of 3 */
    ck_assert_call("every", "k=a -1 k=b", "allowed: 0 0");
    ck_assert_call("every", "k=a -2", "allowed: 2"); /* it had 3, then 1 */
    ck_assert_call("every", "k=a k=a k=a", "limited: 1 0 over 0");
    ck_assert_call("every", "k=a -1", "allowed: 0");
    ck_assert_call("every", "k=none 5 k=c", "limited: over 0 2");
}
END_TEST

/* --- Many limits ------------------------------------------------------------------------------ */

static const char *many(unsigned count, const char *text)
{
    static char all[16384];
    size_t n = 0;

    for (unsigned i = 0; i < count; i++)
        n += (size_t)snprintf(all + n, sizeof all - n, "%s%u ", text, i);
    return all;
}

START_TEST(the_largest_calls_are_atomic)
{
    start(1, true);
    for (unsigned i = 0; i < 3; i++)
        ck_assert_int_eq(decide("all", many(DESCRIPTORS_MAX, "k=v"))->verdict, VERDICT_ALLOWED);
    ck_assert_int_eq(decide("all", many(DESCRIPTORS_MAX, "k=v"))->verdict, VERDICT_LIMITED);
    ck_assert_call("all", "k=w 3", "allowed: 0");
    const struct call_decision *d = decide("all", "k=w k=1 k=2 k=3 k=4 k=5 k=6 k=7 k=8 k=9");
    ck_assert_int_eq(d->verdict, VERDICT_LIMITED);
    ck_assert_uint_eq(d->shown.result_count, LIMITS_PER_RULE_MAX);
    ck_assert_int_eq(d->shown.results[d->shown.rejected_by].verdict, VERDICT_LIMITED);
    for (unsigned i = 1; i < 10; i++)
        ck_assert_uint_eq(d->results[i].remaining, 3);
    d = decide("all", many(DESCRIPTORS_MAX, "both=v"));
    ck_assert_int_eq(d->verdict, VERDICT_ALLOWED);
    for (unsigned i = 0; i < DESCRIPTORS_MAX; i++)
        ck_assert_uint_eq(d->results[i].remaining, 1);
    ck_assert_int_eq(decide("every", many(DESCRIPTORS_MAX, "k=v"))->verdict, VERDICT_ALLOWED);
}
END_TEST

/* --- Concurrency ------------------------------------------------------------------------------ */

static void calls_of_64_clients(const char *domain, const char *text, unsigned admitted)
{
    static struct test_call calls[CALLS_MAX];
    unsigned allowed = 0;

    for (unsigned i = 0; i < CALLS_MAX; i++)
        begin(&calls[i], i % limiter_count, domain, text);
    rig_run_until(base, flush_all, none_under_way, NULL);
    for (unsigned i = 0; i < CALLS_MAX; i++) {
        allowed += calls[i].request.decision.verdict == VERDICT_ALLOWED;
        call_request_end(&calls[i].request);
    }
    ck_assert_uint_eq(allowed, admitted);
}

START_TEST(concurrent_calls_are_exact)
{
    start(2, true);
    calls_of_64_clients("all", "k=a", 3);
    calls_of_64_clients("all", "k=b k=c", 3);
    calls_of_64_clients("all", "q=a q=b k=d", 2);
    calls_of_64_clients("every", "k=a k=b", 3);
    calls_of_64_clients("all", "k=1 k=2 k=3 k=4 k=5 k=6 k=7 k=8 k=9", 3);
}
END_TEST

static bool some_are_decided(void *context)
{
    return under_way <= CALLS_MAX - *(unsigned *)context;
}

/* When they are gathered, sent, or some are decided; in a cluster also before their refunds. */
START_TEST(a_call_may_end_at_any_time)
{
    static const char *const texts[] = {"k=a k=b k=c k=d k=e", "k=a -1 q=b", "q=c -1 q=b k=a -1"};
    static struct test_call calls[CALLS_MAX];
    unsigned decided = _i < 4 ? 0 : (unsigned)_i / 4 * 64;

    start(1, true);
    limiters[0]->in_slots = _i % 2;
    for (unsigned i = 0; i < CALLS_MAX; i++)
        begin(&calls[i], 0, i % 4 ? "all" : "every", texts[i % COUNT_OF(texts)]);
    if (_i > 1)
        flush_all(NULL);
    if (decided)
        rig_run_until(base, flush_all, some_are_decided, &decided);
    for (unsigned i = 0; i < CALLS_MAX; i++)
        call_request_end(&calls[i].request);
    under_way = 0;
    ck_assert_call("all", "k=z", "allowed: 2");
}
END_TEST

/* --- In a cluster ------------------------------------------------------------------------------ */

START_TEST(in_a_cluster_charges_are_given_back)
{
    start(1, true);
    limiters[0]->in_slots = true; /* the keys of a call may be in several slots */
    ck_assert_call("all", "q=a 2", "allowed: 0");
    ck_assert_call("all", "q=a q=b k=a", "allowed: over 0 1 2");
    ck_assert_call("all", "q=a k=a", "limited: over 0 2");
    ck_assert_call("all", "k=none q=b k=a", "limited: over 0 1 2");
    ck_assert_call("all", "k=a 2 q=b", "allowed: 0 0");
    ck_assert_call("all", "q=a q=b", "limited: over 0 over 0");
    ck_assert_call("all", "k=w 3", "allowed: 0");
    ck_assert_call("all", "k=w k=1 k=2 k=3 k=4 k=5 k=6 k=7 k=8", "limited: over 0 3 3 3 3 3 3 3 3");
    ck_assert_call("all", "k=1 3 k=8 3", "allowed: 0 0");
    ck_assert_call("every", "k=a 2 k=b 4", "limited: 1 over 0");
    ck_assert_call("every", "k=a k=b", "limited: 0 over 0");
    ck_assert_int_eq(decide("all", many(DESCRIPTORS_MAX, "k=v"))->verdict, VERDICT_ALLOWED);
}
END_TEST

/* As split.c adds the results of slots that are asked in turn: those of the first, then the rest. */
static void put(struct decision *d, const struct limit_op *op, unsigned place, int64_t remaining)
{
    struct limit_result *r = &d->results[d->result_count++];

    verdict_set_result(r, &op->limits[place],
                       &(struct limit_reply){.granted = remaining > 0,
                                             .remaining = remaining,
                                             .retry_after_us = remaining > 0 ? 0 : 1000000,
                                             .reset_us = 1000000});
}

START_TEST(a_denial_belongs_to_its_descriptor)
{
    static const int64_t remaining[] = {2, 0, 1};
    struct decision d = {.verdict = VERDICT_LIMITED}, again;

    start(1, true);
    struct limit_op *op = op_take(limiters[0]);
    op_clear(op);
    op->started_us = clock_us();
    for (op->count = 0; op->count < 3; op->count++)
        op->limits[op->count] =
            (struct op_limit){.limit = policy->rate_limit_service.rate_limits[0],
                              .numbers = {.limit = 3, .burst = 3},
                              .cost = 1,
                              .place = op->count};
    put(&d, op, 0, remaining[0]);
    put(&d, op, 2, remaining[2]);
    put(&d, op, 1, remaining[1]);
    verdict_remember(limiters[0], op, &d);
    ck_assert(verdict_from_denial(limiters[0], op, op->started_us, &again));
    ck_assert_uint_eq(again.result_count, 3);
    for (unsigned i = 0; i < 3; i++) {
        ck_assert_uint_eq(again.results[i].place, i);
        ck_assert_int_eq(again.results[i].remaining, remaining[i]);
        ck_assert_int_eq(again.results[i].verdict, i == 1 ? VERDICT_LIMITED : VERDICT_ALLOWED);
    }
    op_release(op);
}
END_TEST

/* A call that is rejected refunds nothing. */
START_TEST(in_a_cluster_refunds_come_last)
{
    static const int64_t costs[] = {-1, 1, -1, 2, -1};
    static const uint16_t slots[] = {1, 2, 2, 3, 1};
    static const unsigned order[] = {1, 3, 0, 2};

    start(1, true);
    struct limit_op *op = op_take(limiters[0]);
    op_clear(op);
    for (op->count = 0; op->count < COUNT_OF(costs); op->count++)
        op->limits[op->count] = (struct op_limit){
            .cost = costs[op->count], .slot = slots[op->count], .place = op->count};
    ck_assert(op_make_split(op, false));
    ck_assert_uint_eq(op->cluster.split->count, COUNT_OF(order));
    for (unsigned i = 0; i < COUNT_OF(order); i++)
        ck_assert_uint_eq(op->cluster.split->sub_ops[i].op->limits[0].place, order[i]);
    op_release(op);
}
END_TEST

/* Redis gives back no more than was used, and the call cannot charge that again. */
START_TEST(in_a_cluster_a_rejected_call_refunds_nothing)
{
    start(1, true);
    limiters[0]->in_slots = true;
    ck_assert_call("all", "k=a", "allowed: 2");
    ck_assert_call("all", "k=a -3 q=a k=none", "limited: - 2 over 0");
    ck_assert_call("all", "k=a -3 k=none k=1 k=2 k=3 k=4 k=5 k=6 k=7",
                   "limited: - over 0 3 3 3 3 3 3 3");
    ck_assert_call("all", "k=a 0", "allowed: 2");
    ck_assert_call("all", "k=1 0", "allowed: 3");
    ck_assert_call("all", "k=a -3 q=a", "allowed: 3 1");
    ck_assert_call("all", "q=b -1", "allowed: 2");
    ck_assert_call("all", "k=a 3", "allowed: 0");
    ck_assert_call("all", "k=a -1 k=a q=a", "limited: - over 0 1"); /* charged first */
}
END_TEST

/* A refund does not get a redis.timeout of its own. */
START_TEST(in_a_cluster_refunds_have_the_time_of_the_call)
{
    start(1, true);
    limiters[0]->in_slots = true;
    ck_assert_call("all", "k=a 2 k=b", "allowed: 1 2");
    begin(&last, 0, "all", "q=a k=a -1");
    rig_run_until(base, flush_all, has_two_ops, NULL);
    ck_assert(last.request.ops[1].request.op != NULL);
    ck_assert_uint_eq(last.request.ops[1].request.op->deadline.at_us,
                      last.request.started_us + policy->redis.timeout_us);
    rig_run_until(base, flush_all, none_under_way, NULL);
    ck_assert_str_eq(results_of(&last.request.decision), "allowed: 1 2");
}
END_TEST

/* --- Own scripts that fail -------------------------------------------------------------------- */

/* Returns what is left of a limit of the last call. */
static int64_t left_of(const char *limit)
{
    const struct call_request *call = &last.request;
    const struct decision *d = &call->ops[0].request.decision;
    const struct limit_result *results = call->wide_results ? call->wide_results : d->results;
    unsigned count = call->wide_results ? call->limit_count : d->result_count;

    for (unsigned i = 0; i < count; i++)
        if (strcmp(results[i].limit->name, limit) == 0)
            return results[i].remaining;
    ck_abort_msg("no result of %s", limit);
    return 0;
}

START_TEST(every_limit_beside_a_failing_one_is_charged_once)
{
    on_failure = "allow";
    start(1, true);
    for (int left = 4; left >= 0; left--) {
        decide("every", "f=a");
        ck_assert_int_eq(last.request.decision.verdict, VERDICT_ALLOWED);
        ck_assert_int_eq(left_of("wide"), left);
    }
    ck_assert_call("every", "f=a", "limited: over 0");
}
END_TEST

START_TEST(every_limit_is_charged_if_a_failing_one_is_over)
{
    start(1, true);
    ck_assert_call("every", "f=a 2", "allowed: 0");
    ck_assert_int_eq(left_of("wide"), 3);
    ck_assert_call("every", "f=a", "limited: over 0");
    ck_assert_int_eq(left_of("wide"), 2);
    ck_assert_call("every", "f=a", "limited: over 0");
    ck_assert_int_eq(left_of("wide"), 1);
    ck_assert_int_eq(left_of("fails"), 0);
}
END_TEST

/* Each call of a broken limit, a refund, does not charge the others again. */
START_TEST(a_failing_refund_changes_no_other_limit)
{
    on_failure = "allow";
    start(1, true);
    ck_assert_call("all", "f=a 3", "allowed: 2");
    ck_assert_call("all", "f=a -1", "allowed: 3");
    ck_assert_call("all", "f=a -1 k=b", "allowed: 4 2");
    ck_assert_call("all", "f=a -1 q=b", "allowed: 5 1"); /* wide */
    ck_assert_call("all", "alone=a -1 k=b", "allowed: - 1");
    ck_assert_call("all", "alone=a -1 q=b", "allowed: - 0");
    ck_assert_call("all", "alone=a -1 q=b k=b", "limited: - over 0 1");
}
END_TEST

START_TEST(a_failing_refund_may_reject)
{
    on_failure = "deny";
    start(1, true);
    ck_assert_call("all", "alone=a -1 k=b", "failed_closed: - -");
    ck_assert_call("all", "alone=a -1 q=b sh=a", "failed_closed: - - -");
    ck_assert_call("all", "k=b 0 q=b 0 sh=a 0", "allowed: 3 2 2"); /* given back */
    ck_assert_call("every", "alone=a -1 k=b", "failed_closed: - 2");
    ck_assert_call("every", "k=b 0", "allowed: 2");
}
END_TEST

/* Redis decides all other limits of a call with quota_mode, or with more limits than a rule has. */
START_TEST(a_failing_limit_of_a_wide_call_allows)
{
    on_failure = "allow";
    start(1, true);
    ck_assert_call("all", "f=a q=b", "allowed: 4 1");
    ck_assert_call("all", "fq=a q=b", "allowed: 4 0");
    ck_assert_call("all", "fq=a q=b", "allowed: 3 over 0");
    ck_assert_call("all", "fq=a 3 q=b", "allowed: 0 over 0");
    ck_assert_call("all", "fq=a q=b", "limited: over 0 over 0");
    ck_assert_call("all", "fq=a q=c k=b", "allowed: over 0 1 2");
    ck_assert_call("all", "aloneq=a k=b", "allowed: - 1"); /* the only one with quota_mode passes */
    ck_assert_call("all", "aloneq=a k=b 2", "limited: - over 0");
    ck_assert_call("all", "f=a k=1 k=2 k=3 k=4 k=5 k=6 k=7 k=8", "allowed: 3 2 2 2 2 2 2 2 2");
    ck_assert_call("all", "f=a k=1 k=2 k=none k=4 k=5 k=6 k=7 k=8",
                   "limited: 3 2 2 over 0 2 2 2 2 2");
    ck_assert_call("all", "alone=a aloneq=b", "failed_open: - -");
}
END_TEST

START_TEST(a_failing_limit_of_a_wide_call_denies)
{
    on_failure = "deny";
    start(1, true);
    ck_assert_call("all", "f=a q=b", "failed_closed: - -");
    ck_assert_call("all", "fq=a q=b k=b", "failed_closed: - - -"); /* Redis has charged b */
    ck_assert_call("all", "f=a q=b k=none", "limited: 5 2 over 0");
    ck_assert_call("all", "q=b 0 k=b 0", "allowed: 2 3");
}
END_TEST

START_TEST(own_scripts_of_a_wide_call_count_as_late)
{
    start(1, true);
    begin(&last, 0, "all", "fq=a bigq=a k=b");
    failures_note_late(last.request.ops[0].request.op);
    rig_run_until(base, flush_all, none_under_way, NULL);
    /* All limits of these tests have the same row. */
    ck_assert_uint_eq(counter_read(counter_table_row(&stats[0].by_limit, 0) + SCRIPT_LATE_COLUMN),
                      2);
}
END_TEST

START_TEST(a_failing_limit_of_a_wide_call_is_counted_in_this_process)
{
    start(1, true);
    ck_assert_call("all", "f=a q=a", "allowed: 1 1");
    ck_assert_call("all", "f=a q=b", "allowed: 0 1");
    ck_assert_call("all", "f=a q=b k=a", "limited: over 0 1 3");
    ck_assert_call("all", "q=b 0 k=a 0", "allowed: 1 3");
    ck_assert_call("all", "fq=a 2 q=b 0", "allowed: 0 1");
    ck_assert_call("all", "fq=a q=b k=a", "allowed: over 0 0 2");
    ck_assert_call("all", "fq=a q=b k=a", "limited: over 0 over 0 2");
    ck_assert_int_eq(left_of("wide"), 3);
    ck_assert_call("all", "aloneq=b q=b k=a", "allowed: 1 over 0 1");
    ck_assert_call("all", "aloneq=b q=b k=none", "limited: - over 0 over 0");
}
END_TEST

/* Redis rejects some descriptors that this process has charged before, by 7 units. */
START_TEST(charges_of_a_failing_limit_of_a_wide_call_are_given_back)
{
    static const char *const texts[] = {"big=a q=c 0", "bigq=a q=c 0"};
    static struct test_call calls[12];
    unsigned admitted = 0;

    start(1, true);
    for (unsigned i = 0; i < COUNT_OF(calls); i++)
        begin(&calls[i], 0, "all", texts[_i]);
    rig_run_until(base, flush_all, none_under_way, NULL);
    for (unsigned i = 0; i < COUNT_OF(calls); i++) {
        admitted += !calls[i].request.decision.results[0].over;
        call_request_end(&calls[i].request);
    }
    ck_assert_uint_eq(admitted, 5);
    real_redis_do(&real, "FLUSHALL");
    for (unsigned i = 0; i < 3; i++) {
        decide("all", texts[_i]);
        ck_assert_int_eq(left_of("fails-later"), i < 2 ? 1 - (int)i : 0);
        ck_assert(last.request.decision.results[0].over == (i == 2));
    }
}
END_TEST

/* --- Grants ----------------------------------------------------------------------------------- */

static void grant(const char *client, int64_t quota)
{
    ck_assert(grants_note(&(struct grant){slice_of(client), quota, clock_us() + 60000000}));
}

START_TEST(grants_replace_limits)
{
    start(1, true);
    grant("descriptor:all/k=a", 5);
    grant("descriptor:all/k=b", GRANT_UNLIMITED);
    grant("descriptor:all/k=c", 0);
    grant("descriptor:every/k=c", 0);
    ck_assert_call("all", "k=a 4", "allowed: 1");
    ck_assert_call("all", "k=b 9", "allowed: -");
    ck_assert(last.request.decision.results[0].remaining == UINT32_MAX);
    ck_assert_call("all", "k=a k=c", "limited: - over 0");
    ck_assert_call("every", "k=a k=c", "limited: 2 over 0");
    grant("descriptor:all/q=c", 0);
    /* The only one with quota_mode: charges nothing. */
    ck_assert_call("all", "q=c k=d", "limited: over 0 -");
    ck_assert_call("all", "q=c q=d k=d 2", "allowed: over 0 1 1");
    ck_assert_call("all", "q=c qfree=x k=d", "allowed: over 0 - 0");
    grants_publish(NULL);
    ck_assert_call("all", "k=b", "allowed: 2");
}
END_TEST

START_TEST(a_grant_of_0_rejects_neither_in_shadow_nor_refunds)
{
    start(1, true);
    grant("descriptor:all/sh=c", 0);
    grant("descriptor:all/k=c", 0);
    grant("descriptor:every/k=c", 0);
    ck_assert_call("all", "sh=c", "allowed: -");
    ck_assert_call("all", "sh=c k=a", "allowed: - 2");
    ck_assert_call("all", "sh=c q=a 9", "limited: - over 0");
    ck_assert_call("all", "k=c -1", "allowed: 3");
    ck_assert_call("all", "k=c -1 k=a", "allowed: 3 1");
    ck_assert_call("every", "k=c -1", "allowed: 3");
    ck_assert_call("all", "k=c", "limited: over 0");
}
END_TEST

/* --- Without Redis ---------------------------------------------------------------------------- */

START_TEST(without_redis_this_process_counts)
{
    start(1, false);
    ck_assert_call("all", "k=a", "allowed: 2");
    ck_assert_call("all", "k=a k=a k=a", "limited: 2 2 over 0");
    ck_assert_call("all", "k=a k=none k=b", "limited: 2 over 0 3");
    ck_assert_call("all", "k=a 0 k=a -1 k=b", "allowed: 2 - 2");
    ck_assert_call("all", "q=a 2", "allowed: 0");
    ck_assert_call("all", "q=a q=b", "allowed: over 0 1");
    ck_assert_call("all", "q=a q=b 2", "limited: over 0 over 0");
    ck_assert_call("all", "k=a 2 k=1 k=2 k=3 k=4 k=5 k=6 k=7 k=8", "allowed: 0 2 2 2 2 2 2 2 2");
    ck_assert_call("all", "k=a k=1 k=2 k=3 k=4 k=5 k=6 k=7 k=8", "limited: over 0 2 2 2 2 2 2 2 2");
    ck_assert_call("every", "k=a 4 k=b", "limited: over 0 2");
    ck_assert_call("all", "q=a qfree=x k=p 2",
                   "allowed: over 0 - 1"); /* one with quota_mode passes */
    ck_assert_call("all", "q=a qfree=x k=p 2", "limited: over 0 - over 0");
    ck_assert_call("all", "q=a q=w -1 k=p", "allowed: over 0 - 0");
}
END_TEST

/* As without slots: a rejected call charges nothing. */
START_TEST(without_a_cluster_this_process_counts)
{
    start(1, false);
    limiters[0]->in_slots = true;
    ck_assert_call("all", "q=a k=a k=none", "limited: 2 3 over 0");
    ck_assert_call("all", "q=a k=a", "allowed: 1 2");
    ck_assert_call("all", "k=a 2 k=none k=1 k=2 k=3 k=4 k=5 k=6 k=7",
                   "limited: 2 over 0 3 3 3 3 3 3 3");
}
END_TEST

START_TEST(without_redis_calls_may_pass)
{
    on_failure = "allow";
    start(1, false);
    ck_assert_call("all", "k=a k=none", "failed_open: - -");
    ck_assert_call("all", "q=a k=none", "failed_open: - -");
    ck_assert_call("every", "k=a k=none", "failed_open: - -");
}
END_TEST

START_TEST(without_redis_calls_may_fail)
{
    on_failure = "deny";
    start(1, false);
    ck_assert_call("all", "k=a k=b", "failed_closed: - -");
    ck_assert_call("all", "q=a k=b", "failed_closed: - -");
    ck_assert_call("every", "k=a k=b", "failed_closed: - -");
    ck_assert_call("all", "free=a", "allowed: -");
}
END_TEST

/* --- The model -------------------------------------------------------------------------------- */

static uint64_t seed = 1;

static unsigned below(unsigned n)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (unsigned)((seed >> 20) % n);
}

struct model_limit {
    const char *key;
    int64_t limit;
    bool quota, shadow;
};

static const struct model_limit good_limits[] = {
    {"k=a", 3, false, false}, {"k=b", 3, false, false}, {"k=none", 0, false, false},
    {"q=a", 2, true, false},  {"q=b", 2, true, false},  {"sh=a", 2, false, true}};

/* Those with f have a limit whose own script fails, and which allows. They are charged after the
 * others, so a call names each once. */
static const struct model_limit failing_limits[] = {
    {"f=a", 5, false, false}, {"k=b", 3, false, false}, {"fq=b", 5, true, false},
    {"fq=a", 5, true, false}, {"q=b", 2, true, false},  {"fsh=a", 2, false, true}};

static const struct model_limit *model_limits = good_limits;

enum { MODEL_LIMITS = COUNT_OF(good_limits), MODEL_DESCRIPTORS = 12 };

/* Usage by domain and limit. */
static int64_t model_used[2][MODEL_LIMITS];

struct model_item {
    unsigned limit;
    int64_t cost;
    bool fits, over;
    int64_t remaining;
};

static int64_t left(unsigned limit, int64_t used)
{
    return used < model_limits[limit].limit ? model_limits[limit].limit - used : 0;
}

static void model_charge(struct model_item *item, int64_t *used, bool every)
{
    const struct model_limit *limit = &model_limits[item->limit];
    int64_t *u = &used[item->limit];
    bool fits = item->cost < 0 || *u + (item->cost ? item->cost : 1) <= limit->limit;

    if (item->cost < 0)
        *u = *u > -item->cost ? *u + item->cost : 0;
    else if (fits || every)
        *u += item->cost;
    item->fits = fits;
    item->over = !fits && !limit->shadow;
    item->remaining = left(item->limit, *u);
}

/* Decides a call. Returns whether it is over its limit. */
static bool model_decide(struct model_item *items, unsigned count, bool every)
{
    int64_t *now = model_used[every], before[MODEL_LIMITS];
    unsigned quotas = 0, quotas_over = 0;
    bool over = false;

    memcpy(before, now, sizeof before);
    for (unsigned i = 0; i < count; i++) {
        bool quota = model_limits[items[i].limit].quota;
        model_charge(&items[i], now, every);
        over |= items[i].over && !quota;
        quotas += quota;
        quotas_over += items[i].over && quota;
    }
    over |= quotas && quotas == quotas_over;
    if (over && !every) {
        memcpy(now, before, sizeof before);
        for (unsigned i = 0; i < count; i++)
            if (items[i].fits) /* else a shadow limit, whose numbers are those of its rejection */
                items[i].remaining = left(items[i].limit, now[items[i].limit]);
    }
    for (unsigned i = 0; i < count; i++)
        if (items[i].over)
            items[i].remaining = 0;
    return over;
}

/* In a cluster, a call with more limits than a rule has, or with quota_mode, is charged first. */
static bool model_decide_in_slots(struct model_item *items, unsigned count)
{
    struct model_item in_order[MODEL_DESCRIPTORS];
    unsigned from[MODEL_DESCRIPTORS], n = 0, limits = 0;
    bool is_wide = false;

    for (unsigned i = 0; i < count; i++) {
        is_wide |= model_limits[items[i].limit].quota;
        limits += model_limits[items[i].limit].key[0] == 'f' ? 2 : 1;
    }
    is_wide |= limits > LIMITS_PER_RULE_MAX;
    for (unsigned i = 0; i < 2 * count; i++)
        if (is_wide ? (items[i % count].cost < 0) == (i >= count) : i < count) {
            from[n] = i % count;
            in_order[n++] = items[i % count];
        }
    bool over = model_decide(in_order, count, false);
    for (unsigned i = 0; i < count; i++)
        items[from[i]] = in_order[i];
    return over;
}

static void compare_one(unsigned step, bool in_slots)
{
    static const int64_t costs[] = {1, 1, 1, 1, 2, 0, -1, -2, 3};
    struct model_item items[MODEL_DESCRIPTORS];
    unsigned count = 1 + below(below(4) ? 4 : MODEL_DESCRIPTORS);
    unsigned domain = in_slots ? 0 : below(2);
    char text[1024], wanted[1024];
    size_t n = 0, w;

    for (unsigned i = 0; i < count; i++) {
        items[i] = (struct model_item){.limit = below(MODEL_LIMITS),
                                       .cost = costs[below(COUNT_OF(costs))]};
        for (unsigned k = 0; k < i && model_limits == failing_limits; k++)
            count = items[k].limit == items[i].limit ? i : count;
        if (i == count)
            break;
        n += (size_t)snprintf(text + n, sizeof text - n, "%s %lld ",
                              model_limits[items[i].limit].key, (long long)items[i].cost);
    }
    bool over =
        in_slots ? model_decide_in_slots(items, count) : model_decide(items, count, domain == 1);
    w = (size_t)snprintf(wanted, sizeof wanted, "%s:", over ? "limited" : "allowed");
    for (unsigned i = 0; i < count; i++)
        w += (size_t)snprintf(wanted + w, sizeof wanted - w, " %s%lld",
                              items[i].over ? "over " : "", (long long)items[i].remaining);
    uint64_t before = remembered();
    const char *got = results_of(decide(domain ? "every" : "all", text));
    /* Remembered denials have earlier numbers, and refunds that had to wait have none. */
    bool has_numbers = !over || (!in_slots && remembered() == before);
    ck_assert_msg(strncmp(got, wanted, has_numbers ? SIZE_MAX : strlen("limited:")) == 0,
                  "%u: %s %s: %s, expected %s", step, domain ? "every" : "all", text, got, wanted);
}

static void compare(bool in_slots)
{
    unsigned steps = getenv("STEPS") ? (unsigned)atoi(getenv("STEPS")) : 2000;

    if (getenv("SEED"))
        seed = (uint64_t)atoll(getenv("SEED"));
    start(1, true);
    limiters[0]->in_slots = in_slots;
    for (unsigned i = 0; i < steps; i++) {
        if (i % 40 == 0) {
            real_redis_do(&real, "FLUSHALL");
            denials_forget_all();
            memset(model_used, 0, sizeof model_used);
        }
        compare_one(i, in_slots);
    }
}

START_TEST(the_model_decides_alike)
{
    compare(false);
}
END_TEST

START_TEST(the_model_decides_alike_in_a_cluster)
{
    compare(true);
}
END_TEST

START_TEST(the_model_decides_alike_beside_scripts_that_fail)
{
    on_failure = "allow";
    model_limits = failing_limits;
    compare(_i == 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("calls");
    TCase *tests = tcase_create("calls");

    tcase_set_timeout(tests, 600);
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_test(tests, all_are_charged_or_none);
    tcase_add_test(tests, costs_refunds_and_questions);
    tcase_add_test(tests, stated_limits_replace_those_of_the_policy);
    tcase_add_test(tests, several_limits_of_a_descriptor);
    tcase_add_test(tests, a_shadow_limit_never_rejects);
    tcase_add_test(tests, values_of_a_shared_pattern_have_one_count);
    tcase_add_test(tests, quotas_reject_only_together);
    tcase_add_test(tests, every_descriptor_is_charged);
    tcase_add_test(tests, the_largest_calls_are_atomic);
    tcase_add_test(tests, concurrent_calls_are_exact);
    tcase_add_loop_test(tests, a_call_may_end_at_any_time, 0, 8);
    tcase_add_test(tests, in_a_cluster_charges_are_given_back);
    tcase_add_test(tests, a_denial_belongs_to_its_descriptor);
    tcase_add_test(tests, in_a_cluster_refunds_come_last);
    tcase_add_test(tests, in_a_cluster_a_rejected_call_refunds_nothing);
    tcase_add_test(tests, in_a_cluster_refunds_have_the_time_of_the_call);
    tcase_add_test(tests, a_refund_forgets_the_denials_of_its_descriptors);
    tcase_add_test(tests, a_rejected_refund_forgets_nothing);
    tcase_add_test(tests, grants_replace_limits);
    tcase_add_test(tests, a_grant_of_0_rejects_neither_in_shadow_nor_refunds);
    tcase_add_test(tests, every_limit_beside_a_failing_one_is_charged_once);
    tcase_add_test(tests, every_limit_is_charged_if_a_failing_one_is_over);
    tcase_add_test(tests, a_failing_refund_changes_no_other_limit);
    tcase_add_test(tests, a_failing_refund_may_reject);
    tcase_add_test(tests, a_failing_limit_of_a_wide_call_allows);
    tcase_add_test(tests, a_failing_limit_of_a_wide_call_denies);
    tcase_add_test(tests, own_scripts_of_a_wide_call_count_as_late);
    tcase_add_test(tests, a_failing_limit_of_a_wide_call_is_counted_in_this_process);
    tcase_add_loop_test(tests, charges_of_a_failing_limit_of_a_wide_call_are_given_back, 0, 2);
    tcase_add_test(tests, without_redis_this_process_counts);
    tcase_add_test(tests, without_a_cluster_this_process_counts);
    tcase_add_test(tests, without_redis_calls_may_pass);
    tcase_add_test(tests, without_redis_calls_may_fail);
    tcase_add_test(tests, the_model_decides_alike);
    tcase_add_test(tests, the_model_decides_alike_in_a_cluster);
    tcase_add_loop_test(tests, the_model_decides_alike_beside_scripts_that_fail, 0, 2);
    suite_add_tcase(suite, tests);
    return run_suite_in_processes(suite);
}
