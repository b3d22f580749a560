/* check_redis_link.c - the link with a real Redis and with a faulty one: each accepted call
 * completes exactly once, and the state is correct. */
#include <check.h>
#include <event2/thread.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "fault/redis_rig.h"
#include "fault/test_clock.h"
#include "redis/outage.h"
#include "redis/redis_link.h"
#include "run_suite.h"

enum { CALLS_MAX = 10000 };

/* Returns its arguments, then the sum of ARGV. */
static const char echo_script[] =
    "local sum = 0 for _, v in ipairs(ARGV) do sum = sum + (tonumber(v) or 0) end "
    "return { KEYS[1] or '', ARGV[1] or '', sum }";

struct test_call {
    struct redis_call call;
    unsigned done, good;
    enum redis_failure failure;
    char first[64];
    long long sum;
};

static struct event_base *base;
static struct redis_settings settings;
static struct redis_link *test_link;
static struct fake_redis fake;
static struct real_redis real;
static struct test_call calls[CALLS_MAX];
static unsigned ready_count, not_ready_count, done_count;
static enum redis_failure last_cause;
static char log_path[64];

static void on_ready(void *context)
{
    (void)context;
    ready_count++;
}

static void on_not_ready(void *context, enum redis_failure cause)
{
    (void)context;
    not_ready_count++;
    last_cause = cause;
}

static void on_done(struct redis_call *call, const struct redis_reply *reply,
                    enum redis_failure failure)
{
    struct test_call *c = (struct test_call *)call;

    done_count++;
    c->done++;
    c->failure = failure;
    ck_assert(!reply == (failure != REDIS_OK_ANSWER));
    if (!reply || reply->type != RESP_ARRAY)
        return;
    c->good++;
    struct slice first, second;
    int64_t sum;
    if (redis_reply_read(reply, "ssi", &first, &second, &sum)) {
        snprintf(c->first, sizeof c->first, "%.*s|%.*s", SLICE_ARG(first), SLICE_ARG(second));
        c->sum = sum;
    }
}

static bool send_call(unsigned i)
{
    char number[16];
    const char *argv[] = {"1", "a key\r\n", "", "3", number};
    size_t sizes[] = {1, 7, 0, 1, (size_t)snprintf(number, sizeof number, "%u", i)};

    calls[i] = (struct test_call){.call.done = on_done};
    return redis_link_call(test_link, &calls[i].call, 5, argv, sizes);
}

static void new_link(const struct address *address)
{
    static const struct redis_link_watch watch = {.ready = on_ready, .not_ready = on_not_ready};
    settings.address = *address;
    test_link = redis_link_new(base, &settings, address, SLICE(echo_script), &watch);
}

static void flush(void *context)
{
    (void)context;
    redis_link_flush(test_link);
}

static bool is_ready(void *context)
{
    (void)context;
    return redis_link_is_ready(test_link);
}

static bool is_not_ready(void *context)
{
    return !is_ready(context);
}

static bool nothing_pending(void *context)
{
    (void)context;
    return redis_link_pending(test_link) == 0;
}

static bool has_reconnected(void *context)
{
    (void)context;
    return fake.connections >= 3;
}

static bool has_been_not_ready(void *context)
{
    (void)context;
    return not_ready_count > 0;
}

static void iterate_until(bool (*done)(void *))
{
    rig_run_until(base, flush, done, NULL);
}

static unsigned log_lines(const char *with)
{
    char line[1024];
    unsigned n = 0;
    FILE *log = fopen(log_path, "r");
    while (log && fgets(line, sizeof line, log))
        n += strstr(line, with) != NULL;
    if (log)
        fclose(log);
    return n;
}

static bool has_logged_recovery(void *context)
{
    (void)context;
    return log_lines("available again") > 0;
}

static void set_up(void)
{
    signal(SIGPIPE, SIG_IGN);
    base = event_base_new();
    settings = (struct redis_settings){.timeout_us = 50000, .key_prefix = (char *)"weir"};
    ready_count = not_ready_count = done_count = 0;
    strcpy(log_path, "/tmp/weir-log-XXXXXX");
    close(mkstemp(log_path));
    ck_assert_int_eq(log_open(log_path), 0);
}

static void tear_down(void)
{
    redis_link_free(test_link);
    event_base_free(base);
    unlink(log_path);
}

static void start_real(void)
{
    real_redis_start(&real);
    new_link(&real.address);
}

static void start_fake(void)
{
    fake_redis_start(&fake, base);
    new_link(&fake.address);
    iterate_until(is_ready);
}

/* Ends a test with the scripted server. The link is freed first, since both share a loop. */
static void stop_fake(void)
{
    redis_link_free(test_link);
    test_link = NULL;
    fake_redis_stop(&fake);
    event_base_loop(base, EVLOOP_NONBLOCK);
}

/* --- A real Redis ----------------------------------------------------------------------------- */

/* Several workers repeatedly lose the same Redis at the same time. */
static void *lose_and_recover(void *wrong)
{
    struct redis_outage *outage = redis_outage_join("one");
    enum outage_link state = OUTAGE_LINK_NEW;
    uint64_t us;

    for (unsigned i = 0; i < 100000; i++) {
        enum outage_event event = redis_outage_down(outage, &state, REDIS_FAILURE_CLOSED, &us);
        if (event == OUTAGE_LASTS || us > OUTAGE_REMIND_US)
            (*(unsigned *)wrong)++;
        redis_outage_up(outage, &state, clock_us(), &us);
    }
    redis_outage_leave(outage, state, &us);
    return NULL;
}

START_TEST(durations_of_outages_are_correct_with_several_workers)
{
    pthread_t threads[3];
    unsigned wrong[3] = {0};

    for (unsigned i = 0; i < 3; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, lose_and_recover, &wrong[i]), 0);
    for (unsigned i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    ck_assert_uint_eq(wrong[0] + wrong[1] + wrong[2], 0);
}
END_TEST

/* The link of a policy that a reload has replaced, whose Redis user was deleted, say. */
START_TEST(an_outage_ends_when_its_links_have_left_and_another_is_up)
{
    struct redis_outage *old = redis_outage_join("two"), *new = redis_outage_join("two");
    enum outage_link old_state = OUTAGE_LINK_NEW, new_state = OUTAGE_LINK_NEW;
    uint64_t us, ready_us = clock_us();

    if (_i == 0) /* before the outage */
        ck_assert(!redis_outage_up(new, &new_state, ready_us, &us));
    test_clock_advance_us(1000000);
    ck_assert_int_eq(redis_outage_down(old, &old_state, REDIS_FAILURE_AUTH, &us), OUTAGE_BEGINS);
    test_clock_advance_us(5000000);
    if (_i == 1) /* during the outage, but it was READY before */
        ck_assert(!redis_outage_up(new, &new_state, ready_us, &us));
    if (_i == 2) { /* after it */
        ck_assert(!redis_outage_leave(old, old_state, &us));
        ck_assert(redis_outage_up(new, &new_state, clock_us(), &us));
    } else
        ck_assert(redis_outage_leave(old, old_state, &us));
    ck_assert(us >= 5000000 && us < OUTAGE_REMIND_US);
    test_clock_advance_us(86400000000);
    ck_assert_int_eq(redis_outage_down(new, &new_state, REDIS_FAILURE_CONNECT, &us), OUTAGE_BEGINS);
    ck_assert(!redis_outage_leave(new, new_state, &us));
}
END_TEST

START_TEST(calls_get_complete_replies)
{
    start_real();
    settings.timeout_us = 5000000;
    ck_assert(!send_call(0)); /* not connected yet */
    iterate_until(is_ready);
    for (unsigned i = 0; i < 2000; i++)
        ck_assert(send_call(i));
    ck_assert_uint_eq(done_count, 0);
    iterate_until(nothing_pending);
    ck_assert_uint_eq(done_count, 2000);
    for (unsigned i = 0; i < 2000; i++) {
        ck_assert_uint_eq(calls[i].good, 1);
        ck_assert_str_eq(calls[i].first, "a key\r\n|");
        ck_assert_int_eq(calls[i].sum, 3 + i);
    }
    real_redis_stop(&real);
}
END_TEST

/* Commands are kept for reuse, but not all of a peak. With a sanitizer, mallinfo2() returns 0. */
START_TEST(the_memory_of_many_answered_calls_is_freed)
{
    enum { CALLS = 4000, SIZE = 8000, KEPT = 128 };
    static char large[SIZE];
    static const char *const argv[] = {"1", "key", large};

    memset(large, 'x', sizeof large);
    start_real();
    iterate_until(is_ready);
    size_t before = mallinfo2().uordblks;
    for (unsigned i = 0; i < CALLS; i++) {
        calls[i] = (struct test_call){.call.done = on_done};
        ck_assert(redis_link_call(test_link, &calls[i].call, 3, (const char **)argv,
                                  (size_t[]){1, 3, SIZE}));
    }
    iterate_until(nothing_pending);
    ck_assert_uint_eq(done_count, CALLS);
    size_t kept = mallinfo2().uordblks - before;
    ck_assert_uint_lt(kept, 2 * KEPT * SIZE);
    real_redis_stop(&real);
}
END_TEST

START_TEST(after_a_script_flush_the_script_is_sent_again_within_the_call)
{
    start_real();
    settings.timeout_us = 5000000; /* a late NOSCRIPT counts as no reply */
    iterate_until(is_ready);
    for (unsigned round = 0; round < 20; round++) {
        real_redis_do(&real, "SCRIPT FLUSH");
        for (unsigned i = 0; i < 50; i++)
            ck_assert(send_call(i));
        iterate_until(nothing_pending);
        for (unsigned i = 0; i < 50; i++)
            ck_assert(calls[i].done == 1 && calls[i].good == 1);
    }
    ck_assert_uint_eq(not_ready_count, 0);
    real_redis_stop(&real);
}
END_TEST

START_TEST(a_killed_redis_fails_every_call_once_and_is_used_again)
{
    settings.timeout_us = 5000000; /* a late NOSCRIPT counts as no reply */
    start_real();
    iterate_until(is_ready);
    for (unsigned i = 0; i < 500; i++)
        ck_assert(send_call(i));
    kill(real.pid, SIGSTOP);
    redis_link_flush(test_link);
    real_redis_kill(&real);
    iterate_until(nothing_pending);
    for (unsigned i = 0; i < 500; i++) {
        ck_assert_uint_eq(calls[i].done, 1);
        ck_assert_int_eq(calls[i].failure, REDIS_FAILURE_CLOSED);
    }
    iterate_until(is_not_ready);
    real_redis_start_again(&real);
    iterate_until(is_ready);
    ck_assert(send_call(0));
    iterate_until(nothing_pending);
    ck_assert_uint_eq(calls[0].good, 1);
    iterate_until(has_logged_recovery);
    ck_assert_uint_eq(log_lines("available again"), 1);
    real_redis_stop(&real);
}
END_TEST

START_TEST(a_stopped_redis_opens_the_breaker_until_it_continues)
{
    start_real();
    iterate_until(is_ready);
    kill(real.pid, SIGSTOP);
    for (unsigned i = 0; i < 3; i++)
        ck_assert(send_call(i));
    redis_link_flush(test_link);
    for (unsigned i = 0; i < 3; i++)
        redis_link_note_timeout(test_link);
    ck_assert(!redis_link_is_ready(test_link));
    ck_assert_int_eq(last_cause, REDIS_FAILURE_TIMEOUT);
    ck_assert(!send_call(3));
    redis_link_flush(test_link);
    kill(real.pid, SIGCONT);
    iterate_until(is_ready);
    iterate_until(nothing_pending);
    for (unsigned i = 0; i < 3; i++)
        ck_assert_uint_eq(calls[i].done, 1);
    real_redis_stop(&real);
}
END_TEST

START_TEST(the_link_authenticates_and_selects_the_database)
{
    real_redis_start(&real);
    real_redis_do(&real, "ACL SETUSER weir on >secret ~* +@all");
    settings.username = (char *)"weir";
    settings.password = (char *)"secret";
    settings.database = 3;
    new_link(&real.address);
    iterate_until(is_ready);
    redisReply *clients = real_redis_command(&real, "CLIENT LIST");
    ck_assert_ptr_nonnull(strstr(clients->str, "name=weir"));
    ck_assert_ptr_nonnull(strstr(clients->str, "db=3"));
    ck_assert_ptr_nonnull(strstr(clients->str, "user=weir"));
    freeReplyObject(clients);
    real_redis_stop(&real);
}
END_TEST

START_TEST(a_wrong_password_is_reported)
{
    real_redis_start(&real);
    real_redis_do(&real, "ACL SETUSER weir on >secret ~* +@all");
    settings.username = (char *)"weir";
    settings.password = (char *)"wrong-one";
    settings.timeout_us = 5000000;
    new_link(&real.address);
    iterate_until(has_been_not_ready);
    ck_assert_int_eq(last_cause, REDIS_FAILURE_AUTH);
    ck_assert_uint_eq(log_lines("the login was refused"), 1);
    ck_assert_uint_eq(log_lines("wrong-one"), 0);
    real_redis_stop(&real);
}
END_TEST

START_TEST(a_redis_that_starts_later_is_found)
{
    real_redis_prepare(&real);
    new_link(&real.address);
    iterate_until(has_been_not_ready);
    ck_assert_int_eq(last_cause, REDIS_FAILURE_CONNECT);
    real_redis_start_again(&real);
    iterate_until(is_ready);
    ck_assert_uint_eq(log_lines("could not connect"), 1);
    real_redis_stop(&real);
}
END_TEST

/* --- A scripted Redis ------------------------------------------------------------------------- */

static const struct {
    enum fake_mode mode;
    enum redis_failure failure;
} broken[] = {
    {FAKE_HALF, REDIS_FAILURE_CLOSED},
    {FAKE_CLOSE, REDIS_FAILURE_CLOSED},
    {FAKE_GARBAGE, REDIS_FAILURE_REPLY},
    {FAKE_HUGE, REDIS_FAILURE_REPLY},
};

START_TEST(a_malformed_reply_fails_every_call_once)
{
    start_fake();
    fake.mode = broken[_i].mode;
    fake.only_calls = true;
    for (unsigned i = 0; i < 100; i++)
        ck_assert(send_call(i));
    iterate_until(nothing_pending);
    for (unsigned i = 0; i < 100; i++) {
        ck_assert_uint_eq(calls[i].done, 1);
        ck_assert_int_eq(calls[i].failure, broken[_i].failure);
    }
    ck_assert_int_eq(last_cause, broken[_i].failure);
    fake.mode = FAKE_GOOD;
    iterate_until(is_ready);
    ck_assert(send_call(0));
    iterate_until(nothing_pending);
    ck_assert_uint_eq(calls[0].good, 1);
    stop_fake();
}
END_TEST

START_TEST(an_extra_reply_closes_the_connection)
{
    start_fake();
    fake.mode = FAKE_EXTRA;
    fake.only_calls = true;
    ck_assert(send_call(0));
    iterate_until(is_not_ready);
    ck_assert_uint_eq(calls[0].done, 1);
    ck_assert_uint_eq(calls[0].good, 1);
    ck_assert_int_eq(last_cause, REDIS_FAILURE_REPLY);
    stop_fake();
}
END_TEST

static const struct {
    const char *answer;
    enum redis_failure failure;
    bool leaves; /* the link looks for a better server after a few */
} errors[] = {
    {"-LOADING Redis is loading the dataset in memory\r\n", REDIS_FAILURE_LOADING, true},
    {"-READONLY You can't write against a read only replica.\r\n", REDIS_FAILURE_READONLY, true},
    {"-MASTERDOWN Link with MASTER is down\r\n", REDIS_FAILURE_MASTERDOWN, true},
    {"-NOPERM this user has no permissions\r\n", REDIS_FAILURE_PERMISSION, false},
    {"-ERR unknown command `EVALSHA`, with args beginning with:\r\n", REDIS_FAILURE_PERMISSION,
     false},
    {"-ERR ACL failure in script: User weir has no permissions to run the 'set' command\r\n",
     REDIS_FAILURE_PERMISSION, false},
    {"-ERR Error running script (call to f_0): @user_script:1: The user executing the script can't "
     "run this "
     "command or subcommand script: 0\r\n",
     REDIS_FAILURE_PERMISSION, false},
    {"-NOREPLICAS Not enough good replicas to write.\r\n", REDIS_FAILURE_REPLICAS, false},
    {"-MISCONF Redis is configured to save RDB snapshots, but it's unable to persist to disk.\r\n",
     REDIS_FAILURE_PERSISTENCE, false},
    {"-MOVED 3999 127.0.0.1:6381\r\n", REDIS_FAILURE_CLUSTER, false},
    {"-ASK 3999 127.0.0.1:6381\r\n", REDIS_FAILURE_CLUSTER, false},
    {"-CLUSTERDOWN The cluster is down\r\n", REDIS_FAILURE_CLUSTER, false},
    {"-CROSSSLOT Keys in request don't hash to the same slot\r\n", REDIS_FAILURE_CLUSTER, false},
    {"-TRYAGAIN Multiple keys request during rehashing of slot\r\n", REDIS_FAILURE_CLUSTER, false},
    {"-NOAUTH Authentication required.\r\n", REDIS_FAILURE_AUTH, true},
    {"-OOM command not allowed when used memory > 'maxmemory'.\r\n", REDIS_FAILURE_OOM, false},
    {"-ERR Error running script (call to f_0): @user_script:1: -OOM command not allowed\r\n",
     REDIS_FAILURE_OOM, false},
    {"-BUSY Redis is busy running a script.\r\n", REDIS_FAILURE_BUSY, false},
    {"-ERR user_script:1: attempt to index nil\r\n", REDIS_FAILURE_SCRIPT, false},
    {"-NOSCRIPT No matching script.\r\n", REDIS_FAILURE_SCRIPT, false},
};

/* One such error closes the link. */
static bool is_of_replica(enum redis_failure failure)
{
    return failure == REDIS_FAILURE_READONLY || failure == REDIS_FAILURE_MASTERDOWN;
}

START_TEST(error_replies_have_causes_and_do_not_flood_the_log)
{
    start_fake();
    settings.timeout_us = 5000000; /* a late NOSCRIPT counts as no reply */
    fake.reply = errors[_i].answer;
    for (unsigned i = 0; i < 200; i++)
        ck_assert(send_call(i));
    iterate_until(nothing_pending);
    for (unsigned i = 0; i < 200; i++)
        ck_assert_uint_eq(calls[i].done, 1);
    ck_assert_int_eq(calls[0].failure, errors[_i].failure);
    ck_assert(redis_link_is_ready(test_link) == !errors[_i].leaves);
    /* The first error, and the end of the connection. */
    unsigned lines = errors[_i].leaves && !is_of_replica(errors[_i].failure) ? 2 : 1;
    ck_assert_uint_eq(log_lines(settings.address.local.sun_path), lines);
    stop_fake();
}
END_TEST

START_TEST(the_first_error_reply_is_reported)
{
    start_fake();
    settings.timeout_us = 5000000;
    fake.reply = errors[_i].answer;
    ck_assert(send_call(0));
    iterate_until(nothing_pending);
    ck_assert_int_eq(calls[0].failure, errors[_i].failure);
    ck_assert(redis_link_is_ready(test_link) == !is_of_replica(errors[_i].failure));
    ck_assert_uint_eq(log_lines(settings.address.local.sun_path), 1);
    ck_assert(redis_outage_any_refuses(60000000));
    stop_fake();
}
END_TEST

START_TEST(noscript_is_followed_by_one_eval)
{
    start_fake();
    settings.timeout_us = 5000000; /* a late NOSCRIPT counts as no reply */
    fake.reply = "-NOSCRIPT No matching script.\r\n";
    ck_assert(send_call(0));
    iterate_until(nothing_pending);
    ck_assert_uint_eq(calls[0].done, 1);
    ck_assert_uint_eq(fake.calls, 1);
    ck_assert_uint_eq(fake.evals, 1);
    stop_fake();
}
END_TEST

static const struct {
    const char *command, *answer;
    enum redis_failure failure;
} setup_errors[] = {
    {"AUTH", "-WRONGPASS invalid username-password pair\r\n", REDIS_FAILURE_AUTH},
    {"AUTH", "-ERR AUTH called without any password configured\r\n", REDIS_FAILURE_AUTH},
    {"SCRIPT", "-NOAUTH Authentication required.\r\n", REDIS_FAILURE_AUTH},
    {"SCRIPT", "-ERR Protocol error: unauthenticated bulk length\r\n", REDIS_FAILURE_AUTH},
    {"SCRIPT", "-LOADING Redis is loading the dataset in memory\r\n", REDIS_FAILURE_LOADING},
    {"SCRIPT", "-ERR Error compiling script (new function): user_script:1: nonsense\r\n",
     REDIS_FAILURE_SCRIPT},
    {"SCRIPT", "+OK\r\n", REDIS_FAILURE_REPLY},
    {"ROLE", "*1\r\n$5\r\nslave\r\n", REDIS_FAILURE_READONLY},
    {"SCRIPT", "-NOPERM this user has no permissions\r\n", REDIS_FAILURE_PERMISSION},
    {"SCRIPT", "-MASTERDOWN Link with MASTER is down\r\n", REDIS_FAILURE_MASTERDOWN},
    {"CLIENT", "-ERR max number of clients reached\r\n", REDIS_FAILURE_CLIENTS},
    {"AUTH", "-ERR max number of clients + cluster connections reached\r\n", REDIS_FAILURE_CLIENTS},
    {"CLIENT", "-DENIED Redis is running in protected mode\r\n", REDIS_FAILURE_PROTECTED},
    {"SELECT", "-ERR DB index is out of range\r\n", REDIS_FAILURE_CONNECT},
};

START_TEST(a_failed_set_up_is_retried_and_reported_once)
{
    settings.password = (char *)"secret";
    settings.database = 9;
    fake_redis_start(&fake, base);
    fake.setup_command = setup_errors[_i].command;
    fake.setup_error = setup_errors[_i].answer;
    new_link(&fake.address);
    iterate_until(has_reconnected);
    ck_assert_uint_eq(ready_count, 0);
    ck_assert_uint_eq(not_ready_count, 1);
    ck_assert_int_eq(last_cause, setup_errors[_i].failure);
    ck_assert_uint_eq(log_lines(settings.address.local.sun_path), 1);
    fake.setup_error = NULL;
    iterate_until(is_ready);
    iterate_until(has_logged_recovery);
    ck_assert_uint_eq(log_lines("available again"), 1);
    stop_fake();
}
END_TEST

START_TEST(optional_set_up_commands_may_fail)
{
    fake_redis_start(&fake, base);
    fake.setup_command = _i ? "ROLE" : "CLIENT";
    fake.setup_error = "-NOPERM no permission\r\n";
    new_link(&fake.address);
    iterate_until(is_ready);
    ck_assert_uint_eq(not_ready_count, 0);
    stop_fake();
}
END_TEST

START_TEST(a_server_that_does_not_reply_to_the_login_is_disconnected)
{
    fake_redis_start(&fake, base);
    fake.mode = _i ? FAKE_DEAF : FAKE_HANG;
    new_link(&fake.address);
    iterate_until(has_been_not_ready);
    ck_assert_int_eq(last_cause, REDIS_FAILURE_CONNECT);
    stop_fake();
}
END_TEST

START_TEST(the_watchdog_ends_a_hanging_connection)
{
    start_fake();
    fake.mode = FAKE_HANG;
    for (unsigned i = 0; i < 10; i++)
        ck_assert(send_call(i));
    iterate_until(nothing_pending);
    for (unsigned i = 0; i < 10; i++) {
        ck_assert_uint_eq(calls[i].done, 1);
        ck_assert_int_eq(calls[i].failure, REDIS_FAILURE_TIMEOUT);
    }
    ck_assert(!redis_link_is_ready(test_link));
    fake.mode = FAKE_GOOD;
    iterate_until(is_ready);
    stop_fake();
}
END_TEST

START_TEST(a_hanging_server_gets_only_a_ping)
{
    start_fake();
    fake.mode = FAKE_HANG;
    ck_assert(send_call(0));
    for (unsigned i = 0; i < 3; i++)
        redis_link_note_timeout(test_link);
    ck_assert(!send_call(1));
    iterate_until(nothing_pending); /* the watchdog */
    ck_assert_uint_eq(calls[0].done, 1);
    ck_assert_uint_eq(not_ready_count, 1);
    stop_fake();
}
END_TEST

START_TEST(late_replies_do_not_close_the_breaker)
{
    start_fake();
    settings.timeout_us = 1;
    for (unsigned i = 0; i < 3; i++) {
        ck_assert(send_call(i));
        redis_link_note_timeout(test_link);
        iterate_until(nothing_pending);
        ck_assert_uint_eq(calls[i].good, 1);
    }
    ck_assert(!redis_link_is_ready(test_link));
    settings.timeout_us = 5000000;
    iterate_until(is_ready);
    stop_fake();
}
END_TEST

static void open_breaker(void)
{
    ck_assert(send_call(0));
    for (unsigned i = 0; i < 3; i++)
        redis_link_note_timeout(test_link);
    ck_assert_int_eq(redis_link_breaker(test_link), REDIS_BREAKER_OPEN);
}

/* Returns the number of calls that may be in flight now. */
static unsigned room(void)
{
    unsigned taken = 0;

    while (taken < 1000 && redis_link_has_room(test_link))
        ck_assert(send_call(taken++));
    return taken;
}

START_TEST(slow_start_after_reconnecting)
{
    start_fake();
    settings.timeout_us = 5000000;
    ck_assert_int_eq(redis_link_breaker(test_link), REDIS_BREAKER_CLOSED);
    ck_assert_uint_eq(room(), 1000); /* nothing has failed yet */
    iterate_until(nothing_pending);
    open_breaker();
    iterate_until(is_ready);
    iterate_until(nothing_pending);
    ck_assert_int_eq(redis_link_breaker(test_link), REDIS_BREAKER_HALF_OPEN);
    for (unsigned expected = 1; expected < 64;) {
        unsigned got = room();
        ck_assert_uint_eq(got, expected);
        iterate_until(nothing_pending);
        while (got--)
            expected *= 2;
    }
    ck_assert_int_eq(redis_link_breaker(test_link), REDIS_BREAKER_CLOSED);
    ck_assert_uint_eq(room(), 1000);
    iterate_until(nothing_pending);
    stop_fake();
}
END_TEST

static bool is_half_open(void *context)
{
    (void)context;
    return redis_link_breaker(test_link) == REDIS_BREAKER_HALF_OPEN;
}

START_TEST(a_relapse_is_detected_at_once_and_not_reported_again)
{
    start_fake();
    settings.timeout_us = 5000000;
    open_breaker();
    for (unsigned i = 0; i < 3; i++) {
        iterate_until(is_half_open);
        redis_link_note_timeout(test_link); /* one is enough */
        ck_assert_int_eq(redis_link_breaker(test_link), REDIS_BREAKER_OPEN);
        ck_assert(!send_call(1));
    }
    ck_assert_uint_eq(log_lines("no reply within"),
                      1); /* repeated failures belong to the same outage */
    ck_assert_uint_eq(log_lines("available again"), 0);
    iterate_until(is_half_open);
    while (is_half_open(NULL)) {
        ck_assert(send_call(2));
        iterate_until(nothing_pending);
    }
    ck_assert_uint_eq(log_lines("no reply within"), 1);
    ck_assert_uint_eq(log_lines("available again"), 1); /* slow start has ended */
    stop_fake();
}
END_TEST

static bool has_pinged(void *pings)
{
    return fake.pings >= *(unsigned *)pings;
}

static void iterate_until_pings(unsigned pings)
{
    rig_run_until(base, flush, has_pinged, &pings);
}

/* The idle PING of a link that has not recovered yet, since it received LOADING, is answered after
 * a relapse. Neither does it make the link ready early, nor is the server dialed once more. */
START_TEST(a_pong_from_before_a_relapse_makes_no_second_connection)
{
    start_fake();
    settings.timeout_us = 5000000;
    open_breaker();
    iterate_until(is_half_open);
    iterate_until(nothing_pending);
    fake.reply = "-LOADING Redis is loading the dataset in memory\r\n";
    ck_assert(send_call(1));
    iterate_until(nothing_pending);
    fake.holds_pongs = true;
    iterate_until_pings(fake.pings + 1);
    fake.reply = NULL;
    ck_assert(send_call(2));
    redis_link_note_timeout(test_link);
    ck_assert_int_eq(redis_link_breaker(test_link), REDIS_BREAKER_OPEN);
    fake.holds_pongs = false;
    fake_redis_pong(&fake);
    iterate_until(nothing_pending);
    ck_assert_int_eq(redis_link_breaker(test_link), REDIS_BREAKER_OPEN);
    iterate_until(is_half_open);
    iterate_until_pings(fake.pings + 3);
    ck_assert(redis_link_is_ready(test_link));
    ck_assert_uint_eq(fake.connections, 1);
    stop_fake();
}
END_TEST

static bool has_called(void *context)
{
    (void)context;
    return fake.calls > 0;
}

START_TEST(a_hanging_server_gets_one_ping_at_a_time)
{
    start_fake();
    settings.timeout_us = 5000000;
    fake.holds_pongs = true;
    iterate_until_pings(1);
    fake.mode = FAKE_HANG;
    fake.only_calls = true;
    ck_assert(send_call(0));
    for (unsigned i = 0; i < 3; i++)
        redis_link_note_timeout(test_link);
    iterate_until(has_called);
    ck_assert(!redis_link_is_ready(test_link));
    fake_redis_pong(&fake);
    iterate_until(is_ready);
    ck_assert_uint_eq(fake.pings, 1);
    ck_assert_uint_eq(fake.connections, 1);
    stop_fake();
}
END_TEST

START_TEST(calls_above_the_maximum_are_refused)
{
    unsigned taken = 0;
    start_fake();
    fake.mode = FAKE_HANG;
    while (send_call(taken))
        taken++;
    ck_assert_uint_eq(taken, 8192);
    ck_assert_uint_eq(redis_link_pending(test_link), taken);
    ck_assert(redis_link_is_ready(test_link));
    redis_link_free(test_link);
    test_link = NULL;
    ck_assert_uint_eq(done_count, taken);
    ck_assert_int_eq(calls[0].failure, REDIS_FAILURE_DOWN);
    stop_fake();
}
END_TEST

START_TEST(the_link_connects_to_a_new_address)
{
    struct fake_redis first;
    start_fake();
    settings.timeout_us = 5000000; /* a late NOSCRIPT counts as no reply */
    ck_assert(send_call(0));
    first = fake;
    test_clock_skip_waits(false); /* the real server needs real time */
    real_redis_start(&real);
    redis_link_set_address(test_link, &real.address);
    ck_assert_uint_eq(calls[0].done, 1);
    iterate_until(is_ready);
    ck_assert(send_call(1));
    iterate_until(nothing_pending);
    ck_assert_uint_eq(calls[1].good, 1);
    ck_assert_uint_eq(fake.connections, first.connections);
    stop_fake();
    real_redis_stop(&real);
}
END_TEST

static void *freed_from_done;
static void send_again_when_done(struct redis_call *call, const struct redis_reply *reply,
                                 enum redis_failure failure)
{
    on_done(call, reply, failure);
    if (freed_from_done && done_count < 50)
        send_call(done_count);
}

START_TEST(the_done_callback_can_send_while_the_connection_closes)
{
    const char *argv[] = {"0"};
    size_t sizes[] = {1};
    start_fake();
    fake.mode = FAKE_CLOSE;
    freed_from_done = &fake;
    for (unsigned i = 0; i < 10; i++) {
        calls[i] = (struct test_call){.call.done = send_again_when_done};
        ck_assert(redis_link_call(test_link, &calls[i].call, 1, argv, sizes));
    }
    iterate_until(nothing_pending);
    for (unsigned i = 0; i < 10; i++)
        ck_assert_uint_eq(calls[i].done, 1);
    stop_fake();
}
END_TEST

static uint64_t random_state;

static unsigned random_below(unsigned n)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(random_state >> 33) % n;
}

static void random_event(void)
{
    static const char *const answers[] = {NULL, "-OOM no\r\n", "-READONLY no\r\n",
                                          "-NOSCRIPT no\r\n", "$-1\r\n"};

    switch (random_below(8)) {
    case 0: fake.mode = (enum fake_mode)random_below(FAKE_DEAF); break;
    case 1: fake.only_calls = random_below(2); break;
    case 2: fake_redis_drop(&fake); break;
    case 3: redis_link_note_timeout(test_link); break;
    case 4: fake.reply = answers[random_below(COUNT_OF(answers))]; break;
    case 5: redis_link_set_address(test_link, &fake.address); break;
    default: fake.mode = FAKE_GOOD;
    }
}

static void end_all_faults(void)
{
    fake.mode = FAKE_GOOD;
    fake.reply = NULL;
    iterate_until(nothing_pending);
    iterate_until(is_ready);
}

/* Faults in any order: each accepted call completes once, and the link recovers with the server. */
START_TEST(faults_in_any_order)
{
    unsigned asked = 0;
    random_state = (uint64_t)_i + 1;
    start_fake();
    for (unsigned turn = 0; turn < 300; turn++) {
        while (asked < CALLS_MAX && random_below(3) && send_call(asked))
            asked++;
        if (random_below(4) == 0)
            random_event();
        redis_link_flush(test_link);
        event_base_loop(base, EVLOOP_NONBLOCK);
        if (!redis_link_is_ready(test_link) && random_below(4) == 0)
            end_all_faults();
    }
    end_all_faults();
    ck_assert_uint_gt(asked, 100);
    for (unsigned i = 0; i < asked; i++)
        ck_assert_uint_eq(calls[i].done, 1);
    stop_fake();
}
END_TEST

START_TEST(replies_are_read_by_their_shape)
{
    struct redis_reply elements[] = {{.type = RESP_STRING, .text = SLICE("host")},
                                     {.type = RESP_INTEGER, .integer = -7},
                                     {.type = RESP_ARRAY}};
    struct redis_reply reply = {.type = RESP_ARRAY, .count = 3, .elements = elements};
    static const char *const others[] = {"", "si", "sis", "iia", "sa+", "sia*", "sia*+"};
    const struct redis_reply *array = NULL, *any = NULL;
    struct slice text = SLICE("untouched");
    int64_t number = 1;

    for (size_t i = 0; i < COUNT_OF(others); i++)
        ck_assert_msg(!redis_reply_read(&reply, others[i], &text, &number, &array, &any), "%s",
                      others[i]);
    ck_assert(!redis_reply_read(NULL, "+") && !redis_reply_read(&elements[0], "+"));
    ck_assert(slice_equal(text, SLICE("untouched")) && number == 1 && !array && !any);

    ck_assert(redis_reply_read(&reply, "+") &&
              redis_reply_read(&reply, "sia+", &text, &number, &array));
    ck_assert(slice_equal(text, SLICE("host")) && number == -7 && array == &elements[2]);
    ck_assert(redis_reply_read(&reply, "*i*", &any, &number, &array) && any == &elements[0]);
    ck_assert(redis_reply_read(&elements[2], ""));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("redis_link");
    enum { SET_UPS = COUNT_OF(setup_errors) };
    static const char *const cases[] = {"a real Redis", "a scripted Redis", "failed set-ups",
                                        "more failed set-ups"};
    TCase *real_case = tcase_create(cases[0]), *fake_case = tcase_create(cases[1]);
    TCase *set_up_case = tcase_create(cases[2]), *set_up_case_2 = tcase_create(cases[3]);

    tcase_add_checked_fixture(real_case, set_up, tear_down);
    tcase_add_checked_fixture(fake_case, set_up, tear_down);
    tcase_add_checked_fixture(set_up_case, set_up, tear_down);
    tcase_add_checked_fixture(set_up_case_2, set_up, tear_down);
    tcase_set_timeout(real_case, 60);
    tcase_set_timeout(fake_case, 60);
    tcase_set_timeout(set_up_case, 60);
    tcase_set_timeout(set_up_case_2, 60);
    tcase_add_test(real_case, durations_of_outages_are_correct_with_several_workers);
    tcase_add_loop_test(real_case, an_outage_ends_when_its_links_have_left_and_another_is_up, 0, 3);
    tcase_add_test(real_case, calls_get_complete_replies);
    tcase_add_test(real_case, the_memory_of_many_answered_calls_is_freed);
    tcase_add_test(real_case, after_a_script_flush_the_script_is_sent_again_within_the_call);
    tcase_add_test(real_case, a_killed_redis_fails_every_call_once_and_is_used_again);
    tcase_add_test(real_case, a_stopped_redis_opens_the_breaker_until_it_continues);
    tcase_add_test(real_case, the_link_authenticates_and_selects_the_database);
    tcase_add_test(real_case, a_wrong_password_is_reported);
    tcase_add_test(real_case, a_redis_that_starts_later_is_found);
    tcase_add_test(real_case, the_link_connects_to_a_new_address);
    tcase_add_loop_test(fake_case, a_malformed_reply_fails_every_call_once, 0,
                        (int)COUNT_OF(broken));
    tcase_add_test(fake_case, an_extra_reply_closes_the_connection);
    tcase_add_loop_test(fake_case, error_replies_have_causes_and_do_not_flood_the_log, 0,
                        (int)COUNT_OF(errors));
    tcase_add_loop_test(fake_case, the_first_error_reply_is_reported, 0, (int)COUNT_OF(errors));
    tcase_add_test(fake_case, replies_are_read_by_their_shape);
    tcase_add_test(fake_case, noscript_is_followed_by_one_eval);
    tcase_add_loop_test(set_up_case, a_failed_set_up_is_retried_and_reported_once, 0, SET_UPS / 2);
    tcase_add_loop_test(set_up_case_2, a_failed_set_up_is_retried_and_reported_once, SET_UPS / 2,
                        SET_UPS);
    tcase_add_loop_test(fake_case, optional_set_up_commands_may_fail, 0, 2);
    tcase_add_loop_test(fake_case, a_server_that_does_not_reply_to_the_login_is_disconnected, 0, 2);
    tcase_add_test(fake_case, the_watchdog_ends_a_hanging_connection);
    tcase_add_test(fake_case, a_hanging_server_gets_only_a_ping);
    tcase_add_test(fake_case, late_replies_do_not_close_the_breaker);
    tcase_add_test(fake_case, slow_start_after_reconnecting);
    tcase_add_test(fake_case, a_relapse_is_detected_at_once_and_not_reported_again);
    tcase_add_test(fake_case, a_pong_from_before_a_relapse_makes_no_second_connection);
    tcase_add_test(fake_case, a_hanging_server_gets_one_ping_at_a_time);
    tcase_add_test(fake_case, calls_above_the_maximum_are_refused);
    tcase_add_test(fake_case, the_done_callback_can_send_while_the_connection_closes);
    tcase_add_loop_test(fake_case, faults_in_any_order, 0, 4);
    suite_add_tcase(suite, real_case);
    suite_add_tcase(suite, fake_case);
    suite_add_tcase(suite, set_up_case);
    suite_add_tcase(suite, set_up_case_2);
    return run_in_parallel(suite, cases, COUNT_OF(cases));
}
