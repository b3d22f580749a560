/* check_permits.c - permits: calls to Redis are answered late, fail, or get lost in any order, and
 * requests are admitted without Redis. Redis then counts the units that requests hold. */
#include <check.h>
#include <stdlib.h>

#include "fault/test_clock.h"
#include "limit/permits.h"
#include "run_suite.h"

enum { LIMIT = 3, REQUESTS = 12, OPS_MAX = 10000, TICKS = 5000, RETRY_US = 100000 };

static const uint64_t lease_us = 60000000;

/* A charge or a permit call, in the order in which it is sent. */
struct test_op {
    struct permit *permit;
    struct test_request *test_request; /* NULL: it was decided, or this is a permit call */
    bool charges, renews;
    int64_t cost, granted;
    bool lost;       /* weir gets no reply */
    bool exempt;     /* sent before weir has noticed that Redis refused a call */
    uint64_t number; /* of the flush that sent it */
};

struct test_request {
    struct decision_request decision_request;
    bool waits, runs;
    uint64_t number; /* of the next flush when it began to run */
};

static struct event_base *base;
static struct deadlines deadlines;
static struct fallback *fallback;
static struct permits *permits;
static struct limit limit;
static struct limit_numbers numbers;
static struct test_request requests[REQUESTS];
/* ops[0 .. answered) are over, [answered .. executed) wait for their replies, [executed .. sent)
 * for Redis, and [sent .. made) are gathered. */
static struct test_op ops[OPS_MAX];
static unsigned answered, executed, sent, made;
static int64_t counted; /* by Redis */
static uint64_t flushes;
static uint64_t random_state;

static unsigned random_below(unsigned n)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(random_state >> 33) % n;
}

static void set_up(void)
{
    base = event_base_new();
    ck_assert_int_eq(deadlines_init(&deadlines, base), 0);
    fallback = fallback_new(100);
    permits = permits_new(&deadlines, lease_us, fallback);
    limit = (struct limit){.name = (char *)"flight",
                           .kind = LIMIT_CONCURRENCY,
                           .limit = LIMIT,
                           .burst = LIMIT,
                           .period_us = (int64_t)lease_us,
                           .on_failure = ON_FAILURE_LOCAL};
    numbers = (struct limit_numbers){.limit = LIMIT, .burst = LIMIT};
    memset(requests, 0, sizeof requests);
    answered = executed = sent = made = 0;
    counted = 0;
    test_clock_stand(true);
}

static void tear_down(void)
{
    permits_free(permits);
    fallback_free(fallback);
    deadlines_clear(&deadlines);
    event_base_free(base);
    test_clock_stand(false);
}

/* --- weir ------------------------------------------------------------------------------------- */

static struct permit *use_permit(void)
{
    struct permit *permit = permits_use(permits, &limit, numbers, SLICE("key"));

    ck_assert_ptr_nonnull(permit);
    return permit;
}

static void request_charge(struct test_request *r)
{
    r->waits = true;
    ops[made++] =
        (struct test_op){.permit = use_permit(), .test_request = r, .charges = true, .cost = 1};
}

static void begin_to_run(struct test_request *r, struct permit *permit, bool by_redis)
{
    permits_hold(permits, &r->decision_request, permit, 1, by_redis);
    r->waits = false;
    r->runs = true;
    r->number = flushes;
}

static int64_t in_flight_here(void)
{
    struct limit_result result = {.limit = &limit, .quota = 1000, .capacity = 1000};
    struct fallback_request request = {
        .key = SLICE("key"), .cost = 1, .asks = true, .result = &result};

    ck_assert(fallback_decide(fallback, &request, 1));
    return 1000 - result.remaining;
}

static void decide_without_redis(struct test_op *op)
{
    struct limit_result result = {.limit = &limit, .quota = LIMIT, .capacity = LIMIT};
    struct fallback_request request = {.key = SLICE("key"), .cost = 1, .result = &result};
    struct test_request *r = op->test_request;

    op->test_request = NULL;
    if (r && fallback_decide(fallback, &request, 1))
        begin_to_run(r, op->permit, false);
    else if (r)
        r->waits = false;
}

static void end_request(struct test_request *r)
{
    permits_leave(&r->decision_request);
    r->runs = false;
}

static void send_permit_calls(void)
{
    struct permit_call call;

    while (permits_next(permits, &call)) {
        memmove(&ops[sent + 1], &ops[sent], (made - sent) * sizeof ops[0]);
        made++;
        permits_sent(call.permit);
        ops[sent++] =
            (struct test_op){.permit = call.permit, .renews = call.renews, .cost = call.cost};
    }
    (void)!permits_rewind(permits);
}

static bool is_any_lost(void)
{
    bool any = false;

    for (unsigned i = answered; i < executed; i++)
        any |= ops[i].lost;
    return any;
}

/* Drops charges whose requests were decided meanwhile. */
static void send_charges(void)
{
    unsigned end = made;

    made = sent;
    for (unsigned i = sent; i < end; i++) {
        if (!ops[i].test_request) {
            permits_unuse(permits, ops[i].permit);
            continue;
        }
        permits_sent(ops[i].permit);
        ops[i].number = flushes;
        ops[i].exempt = is_any_lost();
        ops[made++] = ops[i];
    }
    sent = made;
}

/* All charges have the same permit. */
static void flush(void)
{
    for (unsigned i = sent; i < made; i++)
        permits_prepare_charge(permits, ops[i].permit);
    send_permit_calls();
    if (made > sent && !permits_delay_charge(ops[sent].permit))
        send_charges();
    flushes++;
}

static void pass_time(uint64_t us)
{
    test_clock_advance_us(us);
    deadlines_pass(&deadlines);
}

/* --- Redis ------------------------------------------------------------------------------------ */

/* The requests that run and that weir had told Redis of before it sent the charge. */
static unsigned known_units(const struct test_op *charge)
{
    unsigned known = 0;

    for (unsigned i = 0; i < REQUESTS; i++)
        known += requests[i].runs && requests[i].number <= charge->number;
    return known;
}

/* As in lua/concurrency.lua. */
static void execute_op(void)
{
    struct test_op *op = &ops[executed++];

    if (op->charges && !op->exempt)
        ck_assert_int_ge(counted, known_units(op));
    if (op->charges) {
        op->granted = counted < LIMIT;
        counted += op->granted;
    } else if (op->renews && op->cost > 0)
        counted = op->cost;
    else if (!op->renews)
        counted = counted + op->cost > 0 ? counted + op->cost : 0;
}

static void refuse_op(void)
{
    ops[executed++].lost = true;
    for (unsigned i = executed; i < sent; i++)
        ops[i].exempt = true;
}

static void answer_op(bool lost)
{
    struct test_op *op = &ops[answered++];

    if (lost || op->lost) {
        permits_failed(permits, op->permit);
        decide_without_redis(op);
    } else {
        permits_answered(op->permit);
        if (op->charges && op->granted && !op->test_request)
            permits_owe(permits, op->permit, op->granted);
        else if (op->test_request && op->granted)
            begin_to_run(op->test_request, op->permit, true);
        else if (op->test_request)
            op->test_request->waits = false;
    }
    permits_unuse(permits, op->permit);
}

/* Everything is sent and answered. Moves the ops to the beginning of the array. */
static void settle(void)
{
    for (unsigned i = 0; i < 10; i++) {
        flush();
        while (executed < sent)
            execute_op();
        while (answered < executed)
            answer_op(false);
        pass_time(RETRY_US);
    }
    ck_assert(answered == made);
    answered = executed = sent = made = 0;
}

static unsigned running(void)
{
    unsigned n = 0;

    for (unsigned i = 0; i < REQUESTS; i++)
        n += requests[i].runs;
    return n;
}

static void assert_all_know_the_units(void)
{
    ck_assert_int_eq(counted, running());
    ck_assert_int_eq(in_flight_here(), running());
}

static void assert_nothing_is_left(void)
{
    for (unsigned i = 0; i < REQUESTS; i++)
        if (requests[i].runs)
            end_request(&requests[i]);
    settle();
    assert_all_know_the_units();
    ck_assert_uint_eq(permits_count(permits), 0);
}

/* --- Tests ------------------------------------------------------------------------------------ */

static void something_happens(bool fails)
{
    struct test_request *r = &requests[random_below(REQUESTS)];

    switch (random_below(fails ? 8 : 6)) {
    case 0:
        if (!r->waits && !r->runs)
            request_charge(r);
        break;
    case 1:
        if (r->runs)
            end_request(r);
        break;
    case 2: flush(); break;
    case 3:
        if (executed < sent)
            execute_op();
        break;
    case 4:
        if (answered < executed)
            answer_op(fails && random_below(50) == 0);
        break;
    case 5:
        if (made > answered && random_below(3) == 0)
            decide_without_redis(&ops[answered + random_below(made - answered)]);
        break;
    case 6: pass_time(random_below(RETRY_US / 4)); break;
    default:
        if (executed < sent && random_below(4) == 0)
            refuse_op();
    }
}

/* Redis counts all units that weir could tell it of before a charge. */
START_TEST(redis_counts_the_units_in_flight)
{
    for (unsigned seed = 0; seed < 100; seed++) {
        random_state = seed;
        for (unsigned i = 0; i < TICKS; i++)
            something_happens(_i);
        settle();
        assert_all_know_the_units();
    }
    assert_nothing_is_left();
}
END_TEST

static void run_without_redis(struct test_request *r)
{
    request_charge(r);
    decide_without_redis(&ops[made - 1]);
    ck_assert(r->runs);
}

START_TEST(a_request_that_ends_while_redis_is_away_leaves_no_permit)
{
    run_without_redis(&requests[0]);
    end_request(&requests[0]);
    permits_unuse(permits, ops[--made].permit);
    ck_assert_uint_eq(permits_count(permits), 0);
    ck_assert_int_eq(in_flight_here(), 0);
}
END_TEST

START_TEST(units_admitted_without_redis_are_charged_when_it_returns)
{
    for (unsigned i = 0; i < LIMIT; i++)
        run_without_redis(&requests[i]);
    request_charge(&requests[LIMIT]);
    settle();
    ck_assert(!requests[LIMIT].runs);
    assert_all_know_the_units();
    assert_nothing_is_left();
}
END_TEST

START_TEST(a_late_grant_is_the_charge_of_the_request_that_runs)
{
    request_charge(&requests[0]);
    flush();
    execute_op();
    decide_without_redis(&ops[0]);
    answer_op(false);
    flush();
    ck_assert_int_eq(counted, 1);
    settle();
    assert_all_know_the_units();
    assert_nothing_is_left();
}
END_TEST

/* A client is so busy that one of its calls is always in progress. */
START_TEST(a_total_is_not_put_off_forever)
{
    request_charge(&requests[0]);
    flush();
    request_charge(&requests[1]);
    flush();
    execute_op();
    answer_op(true);
    pass_time(RETRY_US);
    for (unsigned i = 2; i < 10 && answered < sent; i++) {
        request_charge(&requests[i]);
        flush();
        execute_op();
        answer_op(false);
    }
    ck_assert_uint_eq(answered, 2);
    ck_assert_uint_eq(sent, 2);
    flush();
    ck_assert(ops[2].renews && ops[2].cost == 2);
    settle();
    assert_all_know_the_units();
    assert_nothing_is_left();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("permits");
    TCase *tests = tcase_create("permits");

    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_loop_test(tests, redis_counts_the_units_in_flight, 0, 2);
    tcase_add_test(tests, a_request_that_ends_while_redis_is_away_leaves_no_permit);
    tcase_add_test(tests, units_admitted_without_redis_are_charged_when_it_returns);
    tcase_add_test(tests, a_late_grant_is_the_charge_of_the_request_that_runs);
    tcase_add_test(tests, a_total_is_not_put_off_forever);
    suite_add_tcase(suite, tests);
    return run_suite_in_processes(suite);
}
