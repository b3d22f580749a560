/* check_limiter.c - batches of decisions with a real Redis: exact under load and concurrency,
 * within the timeout on every fault, and on_failure applied on each failure. */
#include <check.h>
#include <event2/event_struct.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "fault/redis_rig.h"
#include "fault/test_clock.h"
#include "limit/compose.h"
#include "limit/denials.h"
#include "limit/key.h"
#include "limit/limiter.h"
#include "run_suite.h"

enum { REQUESTS_MAX = 4000, LIMITERS_MAX = 4 };

struct test_request {
    struct decision_request decision_request;
    unsigned decided;
    uint64_t requested_us, decided_us;
    struct event deadline; /* if checks_deadlines */
    bool late;
};

enum { DEADLINE_US = 500000 }; /* redis.timeout is 50 ms */

static struct event_base *base;
static struct real_redis real;
static struct fake_redis fake;
static struct policy *policy;
static struct fallback *fallback;
static char *script;
static struct limiter *limiters[LIMITERS_MAX];
static struct limiter_stats stats[LIMITERS_MAX];
static unsigned limiter_count;
static struct test_request requests[REQUESTS_MAX];
static unsigned decided_count, expected_count;
static uint64_t random_state;
static bool wants_charge, checks_deadlines;
static struct decision_request charge;
static const char
    *timeout; /* redis.timeout; long in tests that need exact counts on a loaded machine */

static const char *lua_dir(void)
{
    const char *directory = getenv("WEIR_LUA_DIR");
    return directory ? directory : "lua";
}

/* --- The policy under test -------------------------------------------------------------------- */

static const char policy_text[] =
    "redis: { address: \"%s\", timeout: %s, on_failure: local }\n"
    "upstreams: { api: { servers: [ 127.0.0.1:1 ] } }\n"
    "identity: { from: [ \"header:X-Client-Id\", ip ] }\n"
    "limits:\n"
    "  unused: { script: gcra, limit: 1, period: 1s }\n"
    "  per-client: { script: token_bucket, limit: 100, period: 1d, burst: 20 }\n"
    "  everyone: { script: fixed_window, limit: 50, period: 1d, per: all }\n"
    "  window: { script: fixed_window, limit: 10, period: 1h, label: Window }\n"
    "  brief: { script: sliding_window_log, limit: 1, period: 900ms }\n"
    "  log: { script: sliding_window_log, limit: 10, period: 1h, per: [ client, route ] }\n"
    "  pair: { script: sliding_window_log, limit: 2, period: 1h }\n"
    "  pair-rolling: { script: rolling_window, limit: 2, period: 10s, buckets: 100 }\n"
    "  quick: { script: token_bucket, limit: 10, period: 1s }\n"
    "  open: { script: gcra, limit: 5, period: 1h, on_failure: allow }\n"
    "  closed: { script: gcra, limit: 5, period: 1h, on_failure: deny }\n"
    "  tried: { script: fixed_window, limit: 3, period: 1d, shadow: true }\n"
    "  half: { script: fixed_window, limit: 1, period: 1d, per: all, enforce: 50%% }\n"
    "  tried-closed: { script: gcra, limit: 2, period: 1h, shadow: true, on_failure: deny }\n"
    "  flight: { script: concurrency, limit: 3, lease: 1h, on_failure: deny }\n"
    "  queue: { script: leaky_bucket, limit: 1, period: 10s, burst: 100, max_delay: 1h }\n"
    "clients:\n"
    "  client-0: { quota: 0 }\n"
    "  client-1: { quota: unlimited }\n"
    "  client-2: { quota: 3 }\n"
    "  client-3: { limits: { everyone: { limit: 7 } } }\n"
    "rules:\n"
    "  - { name: free, match: { path: /free }, limits: [] }\n"
    "  - { name: one, match: { path: /one }, limits: [ per-client ] }\n"
    "  - { name: two, match: { path: /two }, limits: [ per-client, everyone ] }\n"
    "  - { name: all, match: { path: /all }, limits: [ everyone ] }\n"
    "  - { name: window, match: { path: /window }, limits: [ window ] }\n"
    "  - { name: costly, match: { path: /costly }, limits: [ per-client ], cost: 7 }\n"
    "  - { name: log, match: { path: /log }, limits: [ log ] }\n"
    "  - { name: brief, match: { path: /brief }, limits: [ brief ] }\n"
    "  - { name: pair, match: { path: /pair }, limits: [ pair ] }\n"
    "  - { name: pair-rolling, match: { path: /pair-rolling }, limits: [ pair-rolling ] }\n"
    "  - { name: quick, match: { path: /quick }, limits: [ quick ] }\n"
    "  - { name: flight, match: { path: /flight }, limits: [ flight ] }\n"
    "  - { name: queue, match: { path: /queue }, limits: [ queue ] }\n"
    "  - { name: open, match: { path: /open }, limits: [ open ] }\n"
    "  - { name: mixed, match: { path: /mixed }, limits: [ open, window ] }\n"
    "  - { name: tried, match: { path: /tried }, limits: [ tried, window ] }\n"
    "  - { name: tried-alone, match: { path: /tried-alone }, limits: [ tried ] }\n"
    "  - { name: half, match: { path: /half }, limits: [ half ] }\n"
    "  - { name: tried-closed, match: { path: /tried-closed }, limits: [ tried-closed, tried, "
    "window ] }\n"
    "  - { name: closed, match: { path: /closed }, limits: [ open, window, closed ] }\n";

static void load_policy(const struct address *address)
{
    char path[] = "/tmp/weir-policy-XXXXXX", text[ADDRESS_TEXT_MAX];
    FILE *file = fdopen(mkstemp(path), "w"), *report;
    char *said;
    size_t size;

    fprintf(file, policy_text, address_format(address, text), timeout);
    fclose(file);
    report = open_memstream(&said, &size);
    policy = policy_load(path, lua_dir(), report);
    script = policy ? compose_driver(policy, lua_dir(), report) : NULL;
    fclose(report);
    unlink(path);
    ck_assert_msg(script != NULL, "%s", said);
    free(said);
}

static const struct rule *rule_named(const char *name)
{
    for (unsigned i = 0; i < policy->rule_count; i++)
        if (strcmp(policy->rules[i].name, name) == 0)
            return &policy->rules[i];
    ck_abort_msg("no rule %s", name);
    return NULL;
}

static struct identity identity_named(const char *name)
{
    struct identity identity = {.is_id = true};
    identity.size = (size_t)snprintf(identity.text, sizeof identity.text, "id:%s", name);
    return identity;
}

/* --- Driving ---------------------------------------------------------------------------------- */

/* Flushes as after a loop iteration, and after one without new requests. */
static void flush_all(void *context)
{
    (void)context;
    for (unsigned i = 0; i < 2 * limiter_count; i++)
        limiter_flush(limiters[i / 2]);
}

static void flush_once(void *context)
{
    (void)context;
    limiter_flush(limiters[0]);
}

static bool all_ready(void *context)
{
    (void)context;
    for (unsigned i = 0; i < limiter_count; i++)
        if (!limiter_redis_ready(limiters[i]))
            return false;
    return true;
}

static bool none_ready(void *context)
{
    (void)context;
    for (unsigned i = 0; i < limiter_count; i++)
        if (limiter_redis_ready(limiters[i]))
            return false;
    return true;
}

static bool all_decided(void *context)
{
    (void)context;
    return decided_count == expected_count;
}

static void iterate_until(bool (*done)(void *))
{
    rig_run_until(base, flush_all, done, NULL);
}

static void start_limiters(const struct address *address, unsigned count)
{
    load_policy(address);
    fallback = fallback_new(10000);
    for (limiter_count = 0; limiter_count < count; limiter_count++) {
        ck_assert(counter_table_grow(&stats[limiter_count].by_limit, policy->limit_count));
        limiters[limiter_count] =
            limiter_new(base, policy, fallback, slice_of(script), &stats[limiter_count]);
        ck_assert_ptr_nonnull(limiters[limiter_count]);
    }
}

static void stop_limiters(void)
{
    while (limiter_count)
        limiter_free(limiters[--limiter_count]);
}

static void on_deadline(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    ((struct test_request *)arg)->late = true;
}

/* The loop runs timers in the order of their times, however long the machine takes. */
static void start_deadline(struct test_request *a)
{
    const struct timeval after = {0, DEADLINE_US};
    ck_assert(evtimer_assign(&a->deadline, base, on_deadline, a) == 0 &&
              evtimer_add(&a->deadline, &after) == 0);
}

static void on_decided(struct decision_request *decision_request)
{
    struct test_request *a = (struct test_request *)decision_request;
    if (checks_deadlines)
        evtimer_del(&a->deadline);
    ck_assert_ptr_null(decision_request->op);
    a->decided++;
    a->decided_us = clock_us();
    decided_count++;
}

static enum decided send_request(unsigned i, unsigned limiter, const char *rule, const char *client)
{
    struct identity identity = identity_named(client);
    struct limit_facts facts = {
        .rule = rule_named(rule), .identity = &identity, .method = SLICE("GET")};
    enum decided decided;

    requests[i] =
        (struct test_request){.decision_request.decided = on_decided, .requested_us = clock_us()};
    requests[i].decision_request.wants_charge = wants_charge;
    memset(&requests[i].decision_request.decision, 0xa5,
           sizeof requests[i].decision_request.decision);
    expected_count++;
    decided = limiter_decide(limiters[limiter], &facts, &requests[i].decision_request);
    if (decided == DECIDED_NOW) {
        decided_count++;
        requests[i].decided++;
        requests[i].decided_us = clock_us();
    } else if (checks_deadlines)
        start_deadline(&requests[i]);
    return decided;
}

/* Sends a decision request and waits for the decision. */
static const struct decision *decide(const char *rule, const char *client)
{
    (void)!send_request(0, 0, rule, client);
    iterate_until(all_decided);
    ck_assert_uint_eq(requests[0].decided, 1);
    return &requests[0].decision_request.decision;
}

static unsigned count_verdict(unsigned requested, enum verdict verdict)
{
    unsigned n = 0;
    for (unsigned i = 0; i < requested; i++) {
        ck_assert_uint_eq(requests[i].decided, 1);
        n += requests[i].decision_request.decision.verdict == verdict;
    }
    return n;
}

static unsigned random_below(unsigned n)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(random_state >> 33) % n;
}

static void set_up(void)
{
    signal(SIGPIPE, SIG_IGN);
    ck_assert_int_eq(log_open("/dev/null"), 0);
    base = event_base_new();
    decided_count = expected_count = 0;
    random_state = 1;
    timeout = "50ms";
    checks_deadlines = false;
}

static void tear_down(void)
{
    test_clock_stand(false);
    stop_limiters();
    fallback_free(fallback);
    fallback = NULL;
    policy_drop(policy);
    policy = NULL;
    free(script);
    script = NULL;
    event_base_free(base);
}

static void start_real(unsigned count)
{
    real_redis_start(&real);
    start_limiters(&real.address, count);
    iterate_until(all_ready);
}

static void stop_real(void)
{
    real_redis_stop(&real);
}

static void start_fake(void)
{
    fake_redis_start(&fake, base);
    start_limiters(&fake.address, 1);
    iterate_until(all_ready);
}

static void stop_fake(void)
{
    stop_limiters();
    fake_redis_stop(&fake);
    event_base_loop(base, EVLOOP_NONBLOCK);
}

/* --- In a real Redis -------------------------------------------------------------------------- */

START_TEST(limits_have_the_numbers_of_the_policy)
{
    timeout = "5s";
    start_real(1);
    const struct decision *d = decide("one", "a");
    ck_assert_int_eq(d->verdict, VERDICT_ALLOWED);
    ck_assert_uint_eq(d->result_count, 1);
    ck_assert_int_eq(d->results[0].quota, 100);
    ck_assert_int_eq(d->results[0].capacity, 20);
    ck_assert_int_eq(d->results[0].remaining, 19);
    ck_assert_int_eq(d->results[0].reset_us, 864000000);
    ck_assert(!d->results[0].local);
    for (int i = 0; i < 19; i++)
        d = decide("one", "a");
    ck_assert_int_eq(d->verdict, VERDICT_ALLOWED);
    d = decide("one", "a");
    ck_assert_int_eq(d->verdict, VERDICT_LIMITED);
    ck_assert_int_eq(d->rejected_by, 0);
    ck_assert(d->results[0].retry_after_us > 800000000 &&
              d->results[0].retry_after_us <= 864000000);
    stop_real();
}
END_TEST

START_TEST(clients_can_have_their_own_limits)
{
    timeout = "5s";
    start_real(1);
    const struct decision *d = decide("window", "client-2");
    ck_assert_int_eq(d->results[0].capacity, 3);
    ck_assert_int_eq(d->results[0].remaining, 2);
    decide("window", "client-2");
    ck_assert_int_eq(decide("window", "client-2")->verdict, VERDICT_ALLOWED);
    ck_assert_int_eq(decide("window", "client-2")->verdict, VERDICT_LIMITED);
    d = decide("window", "client-0");
    ck_assert_int_eq(d->verdict, VERDICT_PROHIBITED);
    ck_assert_int_eq(decision_retry_after(d), -1);
    ck_assert_int_eq(decide("two", "client-1")->verdict, VERDICT_UNLIMITED);
    ck_assert_int_eq(decide("free", "client-0")->verdict, VERDICT_ALLOWED);
    ck_assert_uint_eq(decide("free", "client-0")->result_count, 0);
    stop_real();
}
END_TEST

START_TEST(a_rule_can_have_a_cost)
{
    timeout = "5s";
    start_real(1);
    ck_assert_int_eq(decide("costly", "a")->results[0].remaining, 13);
    ck_assert_int_eq(decide("costly", "a")->results[0].remaining, 6);
    const struct decision *d = decide("costly", "a");
    ck_assert_int_eq(d->verdict, VERDICT_LIMITED);
    ck_assert_int_eq(d->results[0].remaining, 6);
    stop_real();
}
END_TEST

START_TEST(requests_of_one_loop_iteration_are_one_call)
{
    timeout = "5s";
    start_real(1);
    for (unsigned i = 0; i < 200; i++)
        ck_assert_int_eq(send_request(i, 0, "two", i % 2 ? "a" : "b"), DECIDED_LATER);
    iterate_until(all_decided);
    ck_assert_uint_eq(counter_read(&stats[0].redis_calls), 4); /* of at most 64 */
    ck_assert_uint_eq(counter_read(&stats[0].redis_requests), 200);
    ck_assert_uint_eq(count_verdict(200, VERDICT_ALLOWED), 40); /* 20 for each client */
    ck_assert_uint_eq(count_verdict(200, VERDICT_LIMITED), 160);
    stop_real();
}
END_TEST

/* The event loop or the machine was busy. */
START_TEST(a_received_reply_is_used_even_after_the_timeout)
{
    start_real(1);
    ck_assert_int_eq(send_request(0, 0, "closed", "a"), DECIDED_LATER);
    flush_all(NULL);
    real_redis_do(&real,
                  "PING"); /* the second reply follows the call, in any order of reads by Redis */
    real_redis_do(&real, "PING");
    while (clock_us() < requests[0].requested_us + 51000)
        usleep(1000);
    ck_assert_uint_eq(decided_count, 0);
    flush_all(NULL); /* no loop iteration yet: nothing read, no timer expired */
    ck_assert_uint_eq(requests[0].decided, 1);
    ck_assert_int_eq(requests[0].decision_request.decision.verdict, VERDICT_ALLOWED);
    ck_assert(!requests[0].decision_request.decision.results[0].local);
    stop_real();
}
END_TEST

START_TEST(decisions_are_batched_while_a_call_is_in_flight)
{
    const counter_t *calls;

    timeout = "5s";
    start_real(1);
    calls = &stats[0].redis_calls;
    uint64_t before = clock_us();
    (void)!send_request(0, 0, "two", "a");
    flush_all(NULL);
    ck_assert_uint_eq(counter_read(calls), 1); /* no delay if no call is in flight */
    for (unsigned i = 1; i < 10; i++)
        (void)!send_request(i, 0, "two", i % 2 ? "a" : "b");
    flush_all(NULL);
    if (clock_us() - before <
        400) /* a busy machine may have stopped us here for longer than they wait */
        ck_assert_uint_eq(counter_read(calls), 1);
    iterate_until(all_decided);
    ck_assert_uint_eq(counter_read(calls), 2);

    (void)!send_request(10, 0, "two", "a");
    flush_all(NULL);
    for (unsigned i = 11; i < 60; i++)
        (void)!send_request(i, 0, "two", "b");
    flush_all(NULL);
    ck_assert_uint_eq(counter_read(calls), 4); /* a large batch is not delayed */
    iterate_until(all_decided);
    ck_assert_uint_eq(count_verdict(60, VERDICT_ALLOWED) + count_verdict(60, VERDICT_LIMITED), 60);
    ck_assert_uint_eq(count_verdict(60, VERDICT_ALLOWED), 7 + 20); /* a: 7 requests; b: 20 of 53 */
    stop_real();
}
END_TEST

START_TEST(decisions_are_batched_as_long_as_iterations_add_more)
{
    const counter_t *calls;

    timeout = "5s";
    start_real(1);
    calls = &stats[0].redis_calls;
    (void)!send_request(0, 0, "two", "a");
    limiter_flush(limiters[0]);
    ck_assert_uint_eq(counter_read(calls), 1); /* a single request is not delayed */
    iterate_until(all_decided);
    uint64_t before = clock_us();
    for (unsigned turns = 0; turns < 3; turns++) {
        for (unsigned i = 0; i < 2; i++)
            (void)!send_request(1 + turns * 2 + i, 0, "two", i ? "a" : "b");
        limiter_flush(limiters[0]);
    }
    if (clock_us() - before < 400) /* as above */
        ck_assert_uint_eq(counter_read(calls), 1);
    limiter_flush(limiters[0]);
    ck_assert_uint_ge(counter_read(calls), 2);
    iterate_until(all_decided);
    (void)!send_request(7, 0, "two",
                        "a"); /* an iteration without a wait leaves it to the next one */
    (void)!send_request(8, 0, "two", "a");
    rig_run_until(base, flush_once, all_decided, NULL);
    stop_real();
}
END_TEST

/* The requests of one loop iteration, and the expected result of each: remaining units, or -1 if
 * rejected. */
static void assert_iteration(const char *const (*requested)[2], const int64_t *remaining,
                             unsigned count)
{
    decided_count = expected_count = 0;
    for (unsigned i = 0; i < count; i++)
        (void)!send_request(i, 0, requested[i][0], requested[i][1]);
    iterate_until(all_decided);
    for (unsigned i = 0; i < count; i++) {
        const struct decision *d = &requests[i].decision_request.decision;
        ck_assert_uint_eq(requests[i].decided, 1);
        ck_assert_msg(
            (d->verdict == VERDICT_ALLOWED ? d->results[0].remaining : -1) == remaining[i],
            "request %u, %s of %s: %s, %d remain, not %d", i, requested[i][0], requested[i][1],
            verdict_label[d->verdict], (int)d->results[0].remaining, (int)remaining[i]);
    }
}

START_TEST(requests_of_one_iteration_get_individual_results)
{
    static const char *const requested[][2] = {
        {"one", "a"},    {"one", "b"}, {"one", "a"},        {"costly", "a"},     {"one", "a"},
        {"costly", "a"}, {"one", "a"}, {"one", "b"},        {"one", "a"},        {"costly", "a"},
        {"all", "a"},    {"all", "b"}, {"all", "client-3"}, {"all", "client-3"}, {"all", "b"},
        {"two", "a"},    {"all", "a"}};
    static const int64_t remaining[] = {19, 19, 18, 11, 10, 3,  2, 18, 1,
                                        -1, 49, 48, 4,  3,  45, 0, 43};

    timeout = "5s";
    start_real(1);
    assert_iteration(requested, remaining, COUNT_OF(requested));
    ck_assert_uint_eq(counter_read(&stats[0].redis_calls), 1);
    stop_real();
}
END_TEST

/* Of 30 requests, 20 are admitted; one more call returns the wait times of the others. */
START_TEST(the_first_requests_of_an_iteration_are_admitted_and_the_others_get_their_wait)
{
    timeout = "5s";
    start_real(1);
    test_clock_stand(true); /* denials are remembered for 1 s */
    for (unsigned i = 0; i < 30; i++)
        (void)!send_request(i, 0, "one", "a");
    iterate_until(all_decided);
    for (unsigned i = 0; i < 30; i++) {
        const struct limit_result *r = &requests[i].decision_request.decision.results[0];
        ck_assert_int_eq(requests[i].decision_request.decision.verdict,
                         i < 20 ? VERDICT_ALLOWED : VERDICT_LIMITED);
        ck_assert_int_eq(r->remaining, i < 20 ? 19 - i : 0);
        ck_assert(i < 20 || (r->retry_after_us > 800000000 && r->retry_after_us <= 864000000));
    }
    ck_assert_uint_eq(counter_read(&stats[0].redis_calls), 2);
    ck_assert_int_eq(decide("one", "a")->verdict, VERDICT_LIMITED);
    ck_assert_uint_eq(counter_read(&stats[0].remembered_denials), 1);
    stop_real();
}
END_TEST

START_TEST(requests_of_a_batch_are_refunded_individually)
{
    static const char *const rules[] = {"one", "log", "window"};

    timeout = "5s";
    start_real(1);
    for (unsigned i = 0; i < COUNT_OF(rules); i++) {
        decided_count = expected_count = 0;
        wants_charge = true;
        for (unsigned j = 0; j < 8; j++)
            (void)!send_request(j, 0, rules[i], "a");
        wants_charge = false;
        iterate_until(all_decided);
        ck_assert_int_eq(requests[7].decision_request.decision.results[0].remaining, i ? 2 : 12);
        for (unsigned j = 0; j < 8; j++) {
            ck_assert_ptr_nonnull(requests[j].decision_request.charge);
            j % 3 ? limiter_refund(&requests[j].decision_request, NULL)
                  : limiter_keep_charge(&requests[j].decision_request);
        }
        ck_assert_int_eq(decide(rules[i], "a")->results[0].remaining, (i ? 2 : 12) + 5 - 1);
    }
    stop_real();
}
END_TEST

START_TEST(an_abandoned_request_of_a_batch_does_not_shift_replies)
{
    timeout = "5s";
    start_real(1);
    for (unsigned i = 0; i < 25; i++)
        (void)!send_request(i, 0, "one", "a");
    limiter_abandon(&requests[3].decision_request); /* before it was sent: charged nothing */
    flush_all(NULL);
    limiter_abandon(&requests[5].decision_request); /* after: it stays charged */
    limiter_abandon(&requests[23].decision_request);
    expected_count -= 3;
    iterate_until(all_decided);
    for (unsigned i = 0; i < 23; i++)
        if (i != 3 && i != 5)
            ck_assert_int_eq(requests[i].decision_request.decision.verdict,
                             i <= 20 ? VERDICT_ALLOWED : VERDICT_LIMITED);
    ck_assert_int_eq(requests[20].decision_request.decision.results[0].remaining, 0);
    ck_assert_uint_eq(requests[3].decided + requests[5].decided + requests[23].decided, 0);
    stop_real();
}
END_TEST

/* Requests that one limit rejects are not charged on the other. */
START_TEST(several_limits_are_charged_all_or_none)
{
    timeout = "5s";
    start_real(1);
    for (unsigned i = 0; i < 100; i++)
        (void)!send_request(i, 0, "two", "a"); /* 20 of them */
    iterate_until(all_decided);
    decided_count = expected_count = 0;
    for (unsigned i = 0; i < 100; i++) {
        char client[16];
        snprintf(client, sizeof client, "b%u", i / 10);
        (void)!send_request(i, 0, "two", client); /* each client has 30 left */
    }
    iterate_until(all_decided);
    ck_assert_uint_eq(count_verdict(100, VERDICT_ALLOWED), 30);
    const struct decision *d = decide("one", "b9");
    ck_assert_int_eq(d->results[0].remaining, 19); /* rejected requests charge nothing */
    stop_real();
}
END_TEST

/* Four limiters on one Redis, batches of random size: exactly the limit is admitted. */
START_TEST(exact_under_concurrency)
{
    unsigned requested = 0;
    timeout = "5s";
    start_real(4);
    while (requested < 3000) {
        unsigned n = 1 + random_below(100);
        while (n-- && requested < 3000) {
            char client[16];
            snprintf(client, sizeof client, "c%u", random_below(3));
            (void)!send_request(requested++, random_below(4), "log", client);
        }
        flush_all(NULL);
        event_base_loop(base, EVLOOP_NONBLOCK);
    }
    iterate_until(all_decided);
    ck_assert_uint_eq(count_verdict(requested, VERDICT_ALLOWED), 30);
    ck_assert_uint_eq(count_verdict(requested, VERDICT_LIMITED), 2970);
    stop_real();
}
END_TEST

static bool all_quiet(void *context)
{
    for (unsigned i = 0; i < limiter_count; i++)
        if (!limiter_is_quiet(limiters[i]))
            return false;
    return all_ready(context);
}

static void assert_nothing_in_flight(void)
{
    redisReply *reply = real_redis_command(&real, "KEYS *:l:flight");
    ck_assert_int_eq(reply->type, REDIS_REPLY_ARRAY);
    ck_assert_uint_eq(reply->elements, 0);
    freeReplyObject(reply);
}

START_TEST(concurrency_slots_are_held_until_they_are_released)
{
    timeout = "5s";
    start_real(2);
    for (unsigned i = 0; i < 4; i++)
        (void)!send_request(i, i % 2, "flight", "a");
    iterate_until(all_decided);
    ck_assert_uint_eq(count_verdict(4, VERDICT_ALLOWED), 3);
    for (unsigned i = 0; i < 4; i++)
        ck_assert_uint_eq(requests[i].decision_request.held_count,
                          requests[i].decision_request.decision.verdict == VERDICT_ALLOWED);
    for (unsigned i = 0; i < 4; i++)
        limiter_leave(limiters[i % 2], &requests[i].decision_request);
    limiter_leave(limiters[0], &requests[0].decision_request); /* nothing left to give back */
    iterate_until(all_quiet);
    assert_nothing_in_flight();
    stop_real();
}
END_TEST

/* In a worker, HTTP/2 connections are flushed after the limiter. */
START_TEST(what_comes_after_the_flush_of_an_iteration_does_not_wait_for_an_event)
{
    timeout = "5s";
    start_real(1);
    (void)!send_request(0, 0, "flight", "a");
    iterate_until(all_decided);
    limiter_flush(limiters[0]);
    limiter_wake(limiters[0]);
    ck_assert_int_eq(event_base_get_num_events(base, EVENT_BASE_COUNT_ACTIVE), 0);
    limiter_leave(limiters[0], &requests[0].decision_request);
    limiter_wake(limiters[0]);
    ck_assert_int_gt(event_base_get_num_events(base, EVENT_BASE_COUNT_ACTIVE), 0);
    iterate_until(all_quiet);
    (void)!send_request(0, 0, "window", "a");
    limiter_wake(limiters[0]);
    ck_assert_int_gt(event_base_get_num_events(base, EVENT_BASE_COUNT_ACTIVE), 0);
    iterate_until(all_decided);
    stop_real();
}
END_TEST

/* Redis hangs, dies and returns under load: in the end its concurrency count equals the held
 * slots. */
START_TEST(concurrency_slots_survive_every_redis_fault)
{
    start_real(2);
    for (unsigned round = 0; round < 3; round++) {
        for (unsigned i = 0; i < 2; i++)
            (void)!send_request(i, i, "flight", "a");
        iterate_until(all_decided);
        kill(real.pid, SIGSTOP);
        for (unsigned i = 2; i < 6; i++) /* decided without Redis, which admits one of them later */
            (void)!send_request(i, i % 2, "flight", "a");
        iterate_until(all_decided);
        limiter_leave(limiters[0], &requests[0].decision_request);
        if (round == 1)
            iterate_until(none_ready);
        kill(real.pid, SIGCONT);
        iterate_until(all_ready);
        if (round == 2)
            real_redis_do(&real, "CLIENT KILL TYPE normal SKIPME yes");
        limiter_leave(limiters[1], &requests[1].decision_request);
        for (unsigned i = 2; i < 6; i++)
            limiter_leave(limiters[i % 2], &requests[i].decision_request);
        iterate_until(all_quiet);
        assert_nothing_in_flight();
    }
    stop_real();
}
END_TEST

static long long units_in_flight(void)
{
    redisReply *reply = real_redis_command(&real, "GET weir:{id:a}:l:flight");
    long long units = 0;

    ck_assert(reply->type == REDIS_REPLY_STRING &&
              sscanf(reply->str, "%*[0-9]:%lld:", &units) == 1);
    freeReplyObject(reply);
    return units;
}

static bool total_has_arrived(void *context)
{
    (void)context;
    return units_in_flight() != 3;
}

/* More decisions than may be under way: the last one waits. A total that is stated meanwhile leaves
 * it out. */
START_TEST(a_total_is_sent_before_charges_that_were_held_back)
{
    enum { UNDER_WAY = 512, HELD_BACK = UNDER_WAY + 2 };
    char client[16];

    timeout = "10s";
    start_real(1);
    for (unsigned i = 0; i < 2; i++)
        (void)!send_request(i, 0, "flight", "a");
    iterate_until(all_decided);
    kill(real.pid, SIGSTOP);
    for (unsigned i = 2; i < HELD_BACK; i++) {
        snprintf(client, sizeof client, "client %u", i);
        (void)!send_request(i, 0, "window", client);
    }
    (void)!send_request(HELD_BACK, 0, "flight", "a");
    flush_all(NULL);
    limiter_leave(limiters[0], &requests[0].decision_request);
    kill(real.pid, SIGCONT);
    iterate_until(all_decided);
    ck_assert_uint_eq(requests[HELD_BACK].decision_request.held_count, 1);
    iterate_until(total_has_arrived);
    ck_assert_int_eq(units_in_flight(), 2);
    limiter_leave(limiters[0], &requests[1].decision_request);
    limiter_leave(limiters[0], &requests[HELD_BACK].decision_request);
    iterate_until(all_quiet);
    assert_nothing_in_flight();
    stop_real();
}
END_TEST

static bool two_units_are_in_flight(void *context)
{
    (void)context;
    return units_in_flight() == 2;
}

static bool no_script_was_found(void)
{
    redisReply *reply = real_redis_command(&real, "INFO errorstats");
    bool found = strstr(reply->str, "NOSCRIPT") != NULL;

    freeReplyObject(reply);
    return found;
}

static void load_script(void)
{
    redisContext *c = redisConnectUnix(real.path);
    redisReply *reply = redisCommand(c, "SCRIPT LOAD %s", script);

    ck_assert_int_eq(reply->type, REDIS_REPLY_STRING);
    freeReplyObject(reply);
    redisFree(c);
}

/* Redis does not know the script, so the total is sent again. Another weir has loaded the script
 * meanwhile, so a charge that was sent later comes before it. */
START_TEST(a_total_that_was_sent_again_is_stated_once_more)
{
    timeout = "10s";
    start_real(1);
    for (unsigned i = 0; i < 2; i++)
        (void)!send_request(i, 0, "flight", "a");
    iterate_until(all_decided);
    real_redis_do(&real, "SCRIPT FLUSH");
    limiter_leave(limiters[0], &requests[0].decision_request);
    flush_all(NULL);
    while (!no_script_was_found()) {
    }
    load_script();
    (void)!send_request(2, 0, "flight", "a");
    flush_all(NULL);
    iterate_until(all_decided);
    ck_assert_uint_eq(requests[2].decision_request.held_count, 1);
    iterate_until(two_units_are_in_flight);
    for (unsigned i = 1; i < 3; i++)
        limiter_leave(limiters[0], &requests[i].decision_request);
    iterate_until(all_quiet);
    assert_nothing_in_flight();
    stop_real();
}
END_TEST

START_TEST(a_request_abandoned_before_its_reply_leaves_the_queue)
{
    timeout = "5s";
    start_real(1);
    ck_assert_int_eq(decide("queue", "a")->delay_us, 0);
    for (unsigned i = 1; i < 4; i++) {
        (void)!send_request(i, 0, "queue", "a");
        flush_all(NULL);
        limiter_abandon(&requests[i].decision_request);
        expected_count--;
    }
    int64_t delay_us = INT64_MAX; /* slots are released when the replies arrive */
    for (unsigned i = 0; i < 1000 && delay_us > 10000000; i++) {
        event_base_loop(base, EVLOOP_ONCE | EVLOOP_NONBLOCK);
        flush_all(NULL);
        wants_charge = true;
        delay_us = decide("queue", "a")->delay_us;
        wants_charge = false;
        if (delay_us > 10000000)
            limiter_refund(&requests[0].decision_request, NULL);
    }
    ck_assert(delay_us > 0 && delay_us <= 10000000);
    limiter_keep_charge(&requests[0].decision_request);
    stop_real();
}
END_TEST

START_TEST(a_flushed_script_cache_is_not_noticeable)
{
    unsigned requested = 0;
    timeout = "5s";
    start_real(2);
    for (unsigned round = 0; round < 20; round++) {
        real_redis_do(&real, "SCRIPT FLUSH");
        for (unsigned i = 0; i < 10; i++)
            (void)!send_request(requested++, i % 2, "two", "a");
        iterate_until(all_decided);
    }
    ck_assert_uint_eq(count_verdict(requested, VERDICT_ALLOWED), 20);
    for (unsigned i = 0; i < requested; i++)
        ck_assert(!requests[i].decision_request.decision.results[0].local);
    stop_real();
}
END_TEST

/* On every Redis fault, each request is decided once, within the timeout plus the machine's delay. */
static unsigned send_two_requests(unsigned requested)
{
    char client[16]; /* another each time: a remembered denial would need no Redis */
    snprintf(client, sizeof client, "client %u", requested);
    for (unsigned i = 0; i < 20; i++)
        (void)!send_request(requested++, i % 2, "log", client);
    return requested;
}

/* A new server on a busy machine may miss the timeout of the first requests. */
static unsigned until_redis_decides(unsigned requested)
{
    for (unsigned i = 0; i < 20; i++) {
        iterate_until(all_ready);
        requested = send_two_requests(requested);
        iterate_until(all_decided);
        if (!requests[requested - 1].decision_request.decision.results[0].local)
            return requested;
    }
    ck_abort_msg("Redis decides no request");
}

START_TEST(every_request_is_decided_while_redis_is_killed_stopped_and_restarted)
{
    unsigned requested = 0;
    checks_deadlines = true;
    start_real(2);
    for (unsigned round = 0; round < 4; round++) {
        kill(real.pid, SIGSTOP);
        for (unsigned i = 0; i < 5; i++) {
            requested = send_two_requests(requested);
            iterate_until(all_decided);
        }
        iterate_until(none_ready);
        kill(real.pid, SIGCONT);
        iterate_until(all_ready);
        requested = send_two_requests(requested);
        flush_all(NULL);
        real_redis_kill(&real);
        requested = send_two_requests(requested);
        iterate_until(none_ready);
        requested = send_two_requests(requested);
        iterate_until(all_decided);
        real_redis_start_again(&real);
        requested = until_redis_decides(requested);
    }
    for (unsigned i = 0; i < requested; i++) {
        ck_assert_uint_eq(requests[i].decided, 1);
        ck_assert(!requests[i].late);
    }
    real_redis_stop(&real);
}
END_TEST

/* Sequential requests while Redis hangs: each is still sent, and soon none waits. */
START_TEST(a_late_call_does_not_delay_other_requests)
{
    timeout = "100ms";
    start_real(1);
    kill(real.pid, SIGSTOP);
    test_clock_stand(true); /* a call that is sent too late would not count as a timeout */
    for (unsigned i = 0; i < 3; i++) {
        (void)!send_request(i, 0, "one", "a");
        flush_once(NULL);
        test_clock_advance_us(100000);
        for (; !all_decided(NULL); flush_once(NULL))
            event_base_loop(base, EVLOOP_ONCE);
    }
    ck_assert_uint_eq(counter_read(&stats[0].redis_calls), 3);
    ck_assert(!limiter_redis_ready(limiters[0]));
    kill(real.pid, SIGCONT);
    stop_real();
}
END_TEST

/* After a failure, one call is in flight at first. Further requests wait, and are charged only if
 * they are still waiting when they are sent. */
START_TEST(a_returned_redis_gets_few_calls_at_first)
{
    enum { REQUESTS = 640, CALLS = REQUESTS / 64 };
    char client[16];

    timeout = "5s";
    start_real(1);
    real_redis_kill(&real);
    iterate_until(none_ready);
    real_redis_start_again(&real);
    iterate_until(all_ready);
    ck_assert_int_eq(limiter_breaker(limiters[0]), REDIS_BREAKER_HALF_OPEN);
    for (unsigned i = 0; i < REQUESTS; i++) {
        snprintf(client, sizeof client, "client %u", i);
        (void)!send_request(i, 0, "window", client);
    }
    flush_all(NULL);
    ck_assert_uint_eq(counter_read(&stats[0].redis_calls), 1);
    flush_all(NULL);
    ck_assert_uint_eq(counter_read(&stats[0].redis_calls), 1);
    limiter_abandon(&requests[REQUESTS - 1].decision_request);
    expected_count--;
    iterate_until(all_decided);
    ck_assert_uint_eq(counter_read(&stats[0].redis_calls), CALLS);
    ck_assert_int_eq(limiter_breaker(limiters[0]), REDIS_BREAKER_CLOSED);
    for (unsigned i = 0; i < REQUESTS - 1; i++)
        ck_assert(requests[i].decided == 1 &&
                  !requests[i].decision_request.decision.results[0].local &&
                  requests[i].decision_request.decision.verdict == VERDICT_ALLOWED);
    ck_assert_int_eq(decide("window", client)->results[0].remaining, 9);
    stop_real();
}
END_TEST

/* One unit per 900 ms: Redis denies the second request, the cache denies the next ones, until the
 * moment at which Redis would admit again. */
START_TEST(a_denial_is_cached_until_its_wait_has_passed)
{
    timeout = "5s";
    start_real(1);
    test_clock_stand(true); /* denials are remembered for 1 s */
    ck_assert_int_eq(decide("brief", "a")->verdict, VERDICT_ALLOWED);
    ck_assert_int_eq(decide("brief", "a")->verdict, VERDICT_LIMITED);
    /* The limiter counts from a moment between the request and its decision. */
    uint64_t end_us = requests[0].decided_us +
                      (uint64_t)requests[0].decision_request.decision.results[0].retry_after_us;
    ck_assert_int_eq(send_request(0, 0, "brief", "a"), DECIDED_NOW);
    ck_assert_int_eq(requests[0].decision_request.decision.verdict, VERDICT_LIMITED);
    ck_assert_uint_eq(counter_read(&stats[0].remembered_denials), 1);
    ck_assert_uint_eq(counter_read(&stats[0].redis_calls), 2);
    ck_assert_int_le(requests[0].decision_request.decision.results[0].retry_after_us, 900000);
    ck_assert_int_eq(decide("brief", "b")->verdict,
                     VERDICT_ALLOWED); /* other clients are not affected */
    test_clock_advance_us(end_us - clock_us());
    ck_assert_int_eq(send_request(0, 0, "brief", "a"), DECIDED_LATER);
    iterate_until(all_decided);
    ck_assert_uint_eq(counter_read(&stats[0].remembered_denials), 1);
    stop_real();
}
END_TEST

/* For any Retry-After, a request goes to Redis again within 1 s: the data may have been flushed, or
 * the client reset. */
START_TEST(a_cached_denial_expires_after_a_second)
{
    timeout = "5s";
    start_real(1);
    test_clock_stand(true); /* denials are remembered for 1 s */
    for (unsigned i = 0; i < 10; i++)
        ck_assert_int_eq(decide("window", "a")->verdict, VERDICT_ALLOWED);
    ck_assert_int_eq(decide("window", "a")->verdict, VERDICT_LIMITED);
    ck_assert_int_eq(send_request(0, 0, "window", "a"), DECIDED_NOW);
    freeReplyObject(real_redis_command(&real, "FLUSHALL"));
    test_clock_advance_us(DENIAL_US);
    ck_assert_int_eq(decide("window", "a")->verdict, VERDICT_ALLOWED);
    stop_real();
}
END_TEST

START_TEST(the_clock_of_redis_is_known_for_a_minute)
{
    timeout = "5s";
    start_real(1);
    test_clock_advance_us(10000000);
    ck_assert_int_eq(limiter_stats_clock_ahead(&stats[0]), 0);
    (void)decide("window", "a");
    ck_assert_int_lt(limiter_stats_clock_ahead(&stats[0]), -5000000);
    test_clock_advance_us(CLOCK_NOTED_US + 1000000);
    ck_assert_int_eq(limiter_stats_clock_ahead(&stats[0]), 0);
    stop_real();
}
END_TEST

START_TEST(keys_are_as_documented)
{
    timeout = "5s";
    start_real(1);
    decide("log", "client}%\x01");
    redisReply *keys = real_redis_command(&real, "KEYS *");
    ck_assert_uint_eq(keys->elements, 1);
    ck_assert_str_eq(keys->element[0]->str, "weir:{id:client%7D%25%01}:l:log:{route:log}");
    freeReplyObject(keys);
    stop_real();
}
END_TEST

START_TEST(a_redis_out_of_memory_uses_the_local_fallback)
{
    timeout = "5s";
    start_real(1);
    real_redis_do(&real, "CONFIG SET maxmemory 1");
    const struct decision *d = decide("window", "a");
    ck_assert_int_eq(d->verdict, VERDICT_ALLOWED);
    ck_assert(d->results[0].local);
    ck_assert_uint_eq(counter_read(&stats[0].redis_failures[REDIS_FAILURE_OOM]), 1);
    real_redis_do(&real, "CONFIG SET maxmemory 0");
    ck_assert(!decide("window", "a")->results[0].local);
    stop_real();
}
END_TEST

/* --- Faults and on_failure -------------------------------------------------------------------- */

static const struct limit_result *result_named(const struct decision *d, const char *name)
{
    for (unsigned i = 0; i < d->result_count; i++)
        if (strcmp(d->results[i].limit->name, name) == 0)
            return &d->results[i];
    return NULL;
}

/* Admits a request and keeps its charge. */
static struct decision_request *charge_units(const char *rule, const char *client)
{
    wants_charge = true;
    ck_assert_int_eq(decide(rule, client)->verdict, VERDICT_ALLOWED);
    wants_charge = false;
    ck_assert_ptr_nonnull(requests[0].decision_request.charge);
    charge = requests[0].decision_request;
    return &charge;
}

START_TEST(a_refund_tells_what_stays_charged)
{
    int64_t units[LIMITS_PER_RULE_MAX] = {7, 7};

    timeout = "5s";
    start_real(1);
    limiter_refund(charge_units("two", "a"), units);
    ck_assert(units[0] == 0 && units[1] == 0);
    struct decision_request *decision_request = charge_units("two", "a");
    real_redis_kill(&real);
    iterate_until(none_ready);
    limiter_refund(decision_request, units);
    ck_assert(units[0] == 1 && units[1] == 1);
    real_redis_stop(&real);
}
END_TEST

START_TEST(a_refund_returns_the_charge)
{
    timeout = "5s";
    start_real(1);
    struct decision_request *decision_request = charge_units("two", "a");
    limiter_refund(decision_request, NULL);
    ck_assert_ptr_null(decision_request->charge);
    limiter_refund(decision_request, NULL); /* once only */
    const struct decision *d = decide("two", "a");
    ck_assert_int_eq(d->results[0].remaining, 19);
    ck_assert_int_eq(d->results[1].remaining, 49);
    decision_request = charge_units("costly", "b");
    limiter_keep_charge(decision_request);
    limiter_refund(decision_request, NULL);
    ck_assert_int_eq(decide("one", "b")->results[0].remaining, 12);
    limiter_refund(charge_units("log", "c"), NULL);
    ck_assert_int_eq(decide("log", "c")->results[0].remaining, 9);
    limiter_refund(charge_units("tried", "d"), NULL);
    d = decide("tried", "d");
    ck_assert_int_eq(d->results[0].remaining, 2);
    ck_assert_int_eq(d->results[1].remaining, 9);
    stop_real();
}
END_TEST

static bool second_is_quiet(void *context)
{
    (void)context;
    return limiter_is_quiet(limiters[1]);
}

/* As after a reload: the previous policy's limiter is freed when it is idle. */
static bool first_is_quiet(void *context)
{
    (void)context;
    return limiter_is_quiet(limiters[0]);
}

/* Denials in the caches of all workers end, but only those by a limit that has units again. */
START_TEST(a_refund_ends_the_denials_of_its_limits)
{
    timeout = "5s";
    start_real(2);
    test_clock_stand(true); /* denials are remembered for 1 s */
    for (unsigned i = 0; i < 6; i++)
        ck_assert_int_eq(decide("two", "client-3")->verdict, VERDICT_ALLOWED);
    struct decision_request *everyone = charge_units("all", "other");

    for (unsigned i = 0; i < 2; i++)
        ck_assert_int_eq(send_request(i, i, "two", "client-3"), DECIDED_LATER);
    iterate_until(all_decided);
    struct decision_request kept = *everyone;

    limiter_refund(charge_units("one", "client-3"), NULL);
    iterate_until(first_is_quiet);
    for (unsigned i = 0; i < 2; i++) {
        ck_assert_int_eq(send_request(i, i, "two", "client-3"), DECIDED_NOW);
        ck_assert_int_eq(requests[i].decision_request.decision.verdict, VERDICT_LIMITED);
    }
    limiter_refund(&kept, NULL);
    iterate_until(first_is_quiet);
    ck_assert_int_eq(send_request(1, 1, "two", "client-3"), DECIDED_LATER);
    iterate_until(all_decided);
    ck_assert_int_eq(requests[1].decision_request.decision.verdict, VERDICT_ALLOWED);
    stop_real();
}
END_TEST

START_TEST(refunds_before_a_limiter_is_freed_are_sent)
{
    timeout = "5s";
    start_real(2);
    wants_charge = true;
    for (unsigned i = 0; i < 2; i++) {
        (void)!send_request(i, 1, "window", "a");
        iterate_until(all_decided);
    }
    wants_charge = false;
    real_redis_do(&real, "SCRIPT FLUSH");
    limiter_refund(&requests[0].decision_request, NULL);
    flush_all(NULL);
    limiter_refund(&requests[1].decision_request, NULL);
    iterate_until(second_is_quiet);
    limiter_free(limiters[--limiter_count]);
    ck_assert_int_eq(decide("window", "a")->results[0].remaining, 9);
    stop_real();
}
END_TEST

START_TEST(a_charge_that_has_expired_is_not_refunded)
{
    timeout = "5s";
    start_real(1);
    struct decision_request *decision_request = charge_units("quick", "a");
    for (uint64_t now = clock_us(); clock_us() <= now + 100000;) /* the bucket's refill time */
        event_base_loop(base, EVLOOP_NONBLOCK);
    limiter_refund(decision_request, NULL);
    (void)decide("one", "x"); /* ordered after it, if it was sent */
    ck_assert_uint_eq(counter_read(&stats[0].redis_requests), 2);
    stop_real();
}
END_TEST

START_TEST(a_refund_of_an_earlier_charge_keeps_later_ones)
{
    static const char *const rules[] = {"pair", "pair-rolling"};
    static const uint64_t apart_us = 150000; /* longer than a bucket is open */

    timeout = "5s";
    start_real(1);
    for (unsigned i = 0; i < COUNT_OF(rules); i++) {
        struct decision_request *decision_request = charge_units(rules[i], "a");
        for (uint64_t now = clock_us(); clock_us() < now + apart_us;)
            event_base_loop(base, EVLOOP_NONBLOCK);
        uint64_t second_us = clock_us();
        ck_assert_int_eq(decide(rules[i], "a")->verdict, VERDICT_ALLOWED);
        limiter_refund(decision_request, NULL);
        ck_assert_int_eq(decide(rules[i], "a")->verdict, VERDICT_ALLOWED);
        const struct decision *d = decide(rules[i], "a");
        ck_assert_int_eq(d->verdict, VERDICT_LIMITED);
        /* The wait is that of the second limit, not of the first. */
        ck_assert_int_ge(d->results[0].retry_after_us,
                         d->results[0].limit->period_us - (int64_t)(clock_us() - second_us));
    }
    stop_real();
}
END_TEST

START_TEST(a_refund_without_redis_is_lost_and_a_rejection_has_no_charge)
{
    timeout = "5s";
    start_real(1);
    struct decision_request *decision_request = charge_units("brief", "a");
    struct decision_request *other = &requests[1].decision_request;
    wants_charge = true;
    ck_assert_int_eq(send_request(1, 0, "brief", "a"), DECIDED_LATER);
    iterate_until(all_decided);
    wants_charge = false;
    ck_assert_int_eq(other->decision.verdict, VERDICT_LIMITED);
    ck_assert_ptr_null(other->charge);
    real_redis_kill(&real);
    iterate_until(none_ready);
    limiter_refund(decision_request, NULL);
    limiter_refund(other, NULL);
    stop_real();
}
END_TEST

START_TEST(a_shadow_limit_counts_and_rejects_no_request)
{
    timeout = "5s";
    start_real(1);
    test_clock_stand(true); /* denials are remembered for 1 s */
    for (int i = 1; i <= 10; i++) {
        const struct decision *d = decide("tried", "a");
        ck_assert_int_eq(d->verdict, VERDICT_ALLOWED);
        ck_assert_int_eq(d->rejected_by, -1);
        ck_assert_int_eq(d->results[0].verdict, i <= 3 ? VERDICT_ALLOWED : VERDICT_SHADOW);
        ck_assert_int_eq(d->results[0].remaining, i <= 3 ? 3 - i : 0);
        ck_assert_int_eq(d->results[0].retry_after_us > 0, i > 3);
        ck_assert_int_eq(d->results[1].remaining, 10 - i); /* still charged */
    }
    const struct decision *d = decide("tried", "a");
    ck_assert_int_eq(d->verdict, VERDICT_LIMITED);
    ck_assert_int_eq(d->rejected_by, 1);
    ck_assert_int_eq(d->results[0].verdict, VERDICT_SHADOW);
    d = decide("tried", "a"); /* from the cache */
    ck_assert_int_eq(d->rejected_by, 1);
    ck_assert_int_eq(d->results[0].verdict, VERDICT_SHADOW);
    ck_assert_uint_eq(counter_read(&stats[0].remembered_denials), 1);
    for (int i = 1; i <= 10; i++)
        (void)decide("window", "b");
    ck_assert_int_eq(decide("tried", "b")->verdict, VERDICT_LIMITED);
    ck_assert_int_eq(decide("tried-alone", "b")->results[0].remaining,
                     2); /* the rejected one is not counted */
    for (int i = 1; i <= 9; i++)
        ck_assert_int_eq(decide("tried-alone", "b")->verdict, VERDICT_ALLOWED);
    ck_assert_int_eq(decide("tried-alone", "b")->results[0].verdict, VERDICT_SHADOW);
    stop_real();
}
END_TEST

START_TEST(a_prohibited_client_is_admitted_by_shadow_limits)
{
    start_fake();
    const struct decision *d = decide("tried-alone", "client-0");
    ck_assert_int_eq(d->verdict, VERDICT_ALLOWED);
    ck_assert_int_eq(d->results[0].verdict, VERDICT_SHADOW);
    d = decide("tried", "client-0");
    ck_assert_int_eq(d->verdict, VERDICT_PROHIBITED);
    ck_assert_str_eq(d->results[0].limit->name, "window");
    d = decide("tried-alone", "client-1");
    ck_assert_int_eq(d->verdict, VERDICT_UNLIMITED);
    ck_assert_uint_eq(d->result_count, 0);
    stop_fake();
}
END_TEST

/* They share the key: a denial of one must not be cached for the other. */
START_TEST(enforce_applies_a_limit_to_a_share_of_clients)
{
    unsigned held = 0;
    timeout = "5s";
    start_real(1);
    (void)decide("half", "first");
    for (unsigned i = 0; i < 400; i++) {
        char client[16];
        snprintf(client, sizeof client, "c%u", i);
        struct identity identity = identity_named(client);
        bool enforced = limit_enforces(rule_named("half")->limits[0], &identity);
        const struct decision *d = decide("half", client);
        ck_assert_int_eq(d->verdict, enforced ? VERDICT_LIMITED : VERDICT_ALLOWED);
        ck_assert_int_eq(d->results[0].verdict, enforced ? VERDICT_LIMITED : VERDICT_SHADOW);
        held += enforced;
    }
    ck_assert_uint_ge(held, 160);
    ck_assert_uint_le(held, 240);
    stop_real();
}
END_TEST

START_TEST(without_redis_a_shadow_limit_rejects_no_request_either)
{
    fake_redis_start(&fake, base);
    fake.mode = FAKE_HANG;
    start_limiters(&fake.address, 1);
    for (int i = 1; i <= 10; i++) {
        const struct decision *d = decide("tried-closed", "a");
        ck_assert_int_eq(d->verdict, VERDICT_ALLOWED);
        /* tried-closed is not counted, and rejects nothing */
        ck_assert_uint_eq(d->result_count, 2);
        ck_assert_int_eq(result_named(d, "tried")->verdict,
                         i <= 3 ? VERDICT_ALLOWED : VERDICT_SHADOW);
        ck_assert_int_eq(result_named(d, "window")->remaining, 10 - i);
    }
    const struct decision *d = decide("tried-closed", "a");
    ck_assert_int_eq(d->verdict, VERDICT_LIMITED);
    ck_assert_str_eq(d->results[d->rejected_by].limit->name, "window");
    ck_assert_int_eq(result_named(d, "tried")->verdict, VERDICT_SHADOW);
    stop_fake();
}
END_TEST

START_TEST(without_redis_each_limit_follows_its_own_on_failure)
{
    fake_redis_start(&fake, base);
    fake.mode = FAKE_HANG;
    start_limiters(&fake.address, 1);
    ck_assert_int_eq(send_request(0, 0, "window", "a"), DECIDED_NOW);
    for (int i = 1; i < 10; i++)
        ck_assert_int_eq(decide("window", "a")->verdict, VERDICT_ALLOWED);
    const struct decision *d = decide("window", "a");
    ck_assert_int_eq(d->verdict, VERDICT_LIMITED);
    ck_assert(d->results[0].local);
    ck_assert_int_eq(d->results[0].capacity, 10);

    d = decide("open", "a");
    ck_assert_int_eq(d->verdict, VERDICT_FAILED_OPEN);
    ck_assert_uint_eq(d->result_count, 0);
    ck_assert(decision_admits(d));

    d = decide("mixed", "b");
    ck_assert_int_eq(d->verdict, VERDICT_ALLOWED);
    ck_assert_uint_eq(d->result_count, 1);
    ck_assert_str_eq(d->results[0].limit->name, "window");
    ck_assert_int_eq(decide("mixed", "a")->verdict, VERDICT_LIMITED);

    d = decide("closed", "c");
    ck_assert_int_eq(d->verdict, VERDICT_FAILED_CLOSED);
    ck_assert_uint_eq(d->result_count, 0);
    ck_assert(!decision_admits(d));
    ck_assert_int_eq(decide("closed", "client-0")->verdict, VERDICT_PROHIBITED);
    stop_fake();
}
END_TEST

START_TEST(a_hanging_redis_ends_decisions_at_the_timeout)
{
    checks_deadlines = true;
    start_fake();
    fake.mode = FAKE_HANG;
    for (unsigned i = 0; i < 100; i++)
        ck_assert_int_eq(send_request(i, 0, i % 2 ? "window" : "closed", "a"), DECIDED_LATER);
    iterate_until(all_decided);
    for (unsigned i = 0; i < 100; i++) {
        ck_assert_uint_eq(requests[i].decided, 1);
        ck_assert_uint_ge(requests[i].decided_us - requests[i].requested_us, 50000);
        ck_assert(!requests[i].late);
    }
    ck_assert(limiter_redis_ready(limiters[0])); /* 100 decisions, but two calls */
    ck_assert_uint_eq(count_verdict(100, VERDICT_FAILED_CLOSED), 50);
    ck_assert_uint_eq(count_verdict(100, VERDICT_ALLOWED), 10);
    /* those that could not be sent in time, on a busy machine, are no fault of Redis */
    uint64_t late = counter_read(&stats[0].redis_failures[REDIS_FAILURE_TIMEOUT]);
    ck_assert_uint_gt(late, 0);
    ck_assert_uint_eq(late + counter_read(&stats[0].redis_failures[REDIS_FAILURE_BUSY]), 100);
    stop_fake();
}
END_TEST

START_TEST(after_timeouts_redis_gets_no_calls_until_it_replies)
{
    start_fake();
    fake.mode = FAKE_HANG;
    for (unsigned i = 0; i < 3; i++) {
        (void)!send_request(i, 0, "window", "a");
        flush_all(NULL);
    }
    iterate_until(none_ready);
    ck_assert_int_eq(send_request(3, 0, "window", "a"), DECIDED_NOW);
    fake.mode = FAKE_GOOD;
    do                            /* a busy machine may miss the timeout */
        iterate_until(all_ready); /* the watchdog reconnects */
    while (decide("window", "a")->results[0].local);
    ck_assert_uint_eq(count_verdict(4, VERDICT_ALLOWED), 4);
    stop_fake();
}
END_TEST

static const char *const wrong_shapes[] = {
    "+OK\r\n",
    ":1\r\n",
    "$-1\r\n",
    "*-1\r\n",
    "*0\r\n",
    "*2\r\n:1\r\n:1\r\n",
    "*3\r\n:1\r\n$1\r\n1\r\n:1\r\n",
    "*3\r\n:1\r\n:1\r\n$1\r\n1\r\n",
    "*4\r\n:1\r\n:1\r\n:1\r\n:1\r\n",
    "*1\r\n*3\r\n:1\r\n:1\r\n:1\r\n",
    "*6\r\n:-1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n",
    "*7\r\n:-1\r\n:1\r\n:1\r\n$1\r\n1\r\n:1\r\n:1\r\n:1\r\n",
    "*8\r\n:-1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n",
    "$23\r\n12345678123456781234567\r\n",
    "$24\r\n123456781234567812345678\r\n", /* numbers out of range */
};

START_TEST(a_malformed_reply_is_a_failure)
{
    timeout = "5s";
    start_fake();
    fake.reply = wrong_shapes[_i];
    ck_assert(decide("window", "a")->results[0].local);
    ck_assert_uint_eq(counter_read(&stats[0].redis_failures[REDIS_FAILURE_REPLY]), 1);
    ck_assert(limiter_redis_ready(limiters[0]));
    stop_fake();
}
END_TEST

START_TEST(an_abandoned_request_is_never_decided)
{
    timeout = "5s";
    start_fake();
    (void)!send_request(0, 0, "window", "a"); /* not sent yet */
    limiter_abandon(&requests[0].decision_request);
    limiter_abandon(&requests[0].decision_request);
    (void)!send_request(1, 0, "window", "a"); /* sent */
    flush_all(NULL);
    limiter_abandon(&requests[1].decision_request);
    (void)!send_request(2, 0, "window", "a");
    expected_count = 1;
    iterate_until(all_decided);
    ck_assert_uint_eq(requests[0].decided + requests[1].decided, 0);
    ck_assert_uint_eq(requests[2].decided, 1);
    ck_assert_uint_eq(fake.calls, 2);
    stop_fake();
}
END_TEST

/* decided() cancels another request and sends a new one, as a connection with pipelined requests
 * does. */
static void abandon_and_send(struct decision_request *decision_request)
{
    unsigned i = (unsigned)((struct test_request *)decision_request - requests);
    on_decided(decision_request);
    if (i + 1 < 50 && requests[i + 1].decision_request.op) {
        limiter_abandon(&requests[i + 1].decision_request);
        decided_count++;
    }
    if (i < 50)
        (void)!send_request(100 + i, 0, "window", "again");
}

START_TEST(the_callback_may_abandon_and_send_requests)
{
    start_fake();
    for (unsigned i = 0; i < 50; i++) {
        (void)!send_request(i, 0, "window", "a");
        requests[i].decision_request.decided = abandon_and_send;
    }
    if (_i == 1)
        fake.mode = FAKE_HANG;
    if (_i == 2)
        fake.mode = FAKE_CLOSE;
    if (_i == 3)
        fake_redis_drop(&fake), event_base_loop(base, EVLOOP_NONBLOCK);
    iterate_until(all_decided);
    for (unsigned i = 0; i < 50; i++) {
        ck_assert_uint_eq(requests[i].decided, i % 2 == 0);
        if (i % 2 == 0)
            ck_assert_uint_eq(requests[100 + i].decided, 1);
    }
    stop_fake();
}
END_TEST

START_TEST(a_limiter_can_be_freed_with_decisions_in_flight)
{
    start_fake();
    fake.mode = FAKE_HANG;
    for (unsigned i = 0; i < 100; i++) {
        (void)!send_request(i, 0, "window", "a");
        if (i == 50)
            flush_all(NULL);
    }
    stop_limiters();
    ck_assert_uint_eq(count_verdict(100, VERDICT_ALLOWED), 10);
    stop_fake();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("limiter");
    TCase *real_case = tcase_create("a real Redis"), *fake_case = tcase_create("faults");

    tcase_add_checked_fixture(real_case, set_up, tear_down);
    tcase_add_checked_fixture(fake_case, set_up, tear_down);
    tcase_set_timeout(real_case, 60);
    tcase_set_timeout(fake_case, 60);
    tcase_add_test(real_case, limits_have_the_numbers_of_the_policy);
    tcase_add_test(real_case, clients_can_have_their_own_limits);
    tcase_add_test(real_case, a_rule_can_have_a_cost);
    tcase_add_test(real_case, requests_of_one_loop_iteration_are_one_call);
    tcase_add_test(real_case, decisions_are_batched_while_a_call_is_in_flight);
    tcase_add_test(real_case, a_received_reply_is_used_even_after_the_timeout);
    tcase_add_test(real_case, decisions_are_batched_as_long_as_iterations_add_more);
    tcase_add_test(real_case, requests_of_one_iteration_get_individual_results);
    tcase_add_test(real_case,
                   the_first_requests_of_an_iteration_are_admitted_and_the_others_get_their_wait);
    tcase_add_test(real_case, requests_of_a_batch_are_refunded_individually);
    tcase_add_test(real_case, an_abandoned_request_of_a_batch_does_not_shift_replies);
    tcase_add_test(real_case, several_limits_are_charged_all_or_none);
    tcase_add_test(real_case, exact_under_concurrency);
    tcase_add_test(real_case, concurrency_slots_are_held_until_they_are_released);
    tcase_add_test(real_case,
                   what_comes_after_the_flush_of_an_iteration_does_not_wait_for_an_event);
    tcase_add_test(real_case, concurrency_slots_survive_every_redis_fault);
    tcase_add_test(real_case, a_total_is_sent_before_charges_that_were_held_back);
    tcase_add_test(real_case, a_total_that_was_sent_again_is_stated_once_more);
    tcase_add_test(real_case, a_request_abandoned_before_its_reply_leaves_the_queue);
    tcase_add_test(real_case, a_flushed_script_cache_is_not_noticeable);
    tcase_add_test(real_case, every_request_is_decided_while_redis_is_killed_stopped_and_restarted);
    tcase_add_test(real_case, a_late_call_does_not_delay_other_requests);
    tcase_add_test(real_case, a_returned_redis_gets_few_calls_at_first);
    tcase_add_test(real_case, a_denial_is_cached_until_its_wait_has_passed);
    tcase_add_test(real_case, a_cached_denial_expires_after_a_second);
    tcase_add_test(real_case, the_clock_of_redis_is_known_for_a_minute);
    tcase_add_test(real_case, keys_are_as_documented);
    tcase_add_test(real_case, a_redis_out_of_memory_uses_the_local_fallback);
    tcase_add_test(fake_case, without_redis_each_limit_follows_its_own_on_failure);
    tcase_add_test(fake_case, a_shadow_limit_counts_and_rejects_no_request);
    tcase_add_test(fake_case, a_refund_tells_what_stays_charged);
    tcase_add_test(fake_case, a_refund_returns_the_charge);
    tcase_add_test(fake_case, a_refund_of_an_earlier_charge_keeps_later_ones);
    tcase_add_test(fake_case, a_refund_ends_the_denials_of_its_limits);
    tcase_add_test(fake_case, refunds_before_a_limiter_is_freed_are_sent);
    tcase_add_test(fake_case, a_charge_that_has_expired_is_not_refunded);
    tcase_add_test(fake_case, a_refund_without_redis_is_lost_and_a_rejection_has_no_charge);
    tcase_add_test(fake_case, a_prohibited_client_is_admitted_by_shadow_limits);
    tcase_add_test(fake_case, enforce_applies_a_limit_to_a_share_of_clients);
    tcase_add_test(fake_case, without_redis_a_shadow_limit_rejects_no_request_either);
    tcase_add_test(fake_case, a_hanging_redis_ends_decisions_at_the_timeout);
    tcase_add_test(fake_case, after_timeouts_redis_gets_no_calls_until_it_replies);
    tcase_add_loop_test(fake_case, a_malformed_reply_is_a_failure, 0, (int)COUNT_OF(wrong_shapes));
    tcase_add_test(fake_case, an_abandoned_request_is_never_decided);
    tcase_add_loop_test(fake_case, the_callback_may_abandon_and_send_requests, 0, 4);
    tcase_add_test(fake_case, a_limiter_can_be_freed_with_decisions_in_flight);
    suite_add_tcase(suite, real_case);
    suite_add_tcase(suite, fake_case);
    return run_suite_in_processes(suite);
}
