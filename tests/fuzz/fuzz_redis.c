/* fuzz_redis.c - sends the input as Redis' reply over a socket, to a script call or during
 * connection setup. Properties: each decision is made exactly once; a request is admitted or
 * rejected only after a complete, valid reply; for any reply, the response fields of the decision
 * consist of digits, tokens and quoted strings.
 *
 * The first byte selects which command receives the rest as its reply: 'c' the script call of a
 * request with one limit, 'm' of one with several limits, 's' the commands of connection setup. */
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/listener.h>
#include <signal.h>
#include <unistd.h>

#include "../unit/headers_named.h"
#include "base/log.h"
#include "base/values.h"
#include "config/policy_file.h"
#include "fuzz.h"
#include "limit/compose.h"
#include "limit/limit_reply.h"
#include "limit/limiter.h"
#include "limit/problem.h"
#include "redis/redis_reply_reader.h"

enum { ITERATIONS_MAX = 10000 };

static const char policy_text[] =
    "redis: { address: 'unix:%s/redis.sock', timeout: 10s, on_failure: deny }\n"
    "upstreams: { api: { servers: [ 127.0.0.1:1 ] } }\n"
    "limits:\n"
    "  one: { script: token_bucket, limit: 100, period: 1d, burst: 20 }\n"
    "  counter: { script: sliding_window_counter, limit: 50, period: 1h, count: [ 200 ], "
    "best_effort: true }\n"
    "  window: { script: fixed_window, limit: 10, period: 1h, dedup: Idempotency-Key }\n"
    "rules:\n"
    "  - { match: { path: /one }, limits: [ one ] }\n"
    "  - { limits: [ one, counter, window ], cost: { response_header: X-Cost } }\n";

/* The reply and the command that receives it. */
static struct {
    char to;
    const char *bytes;
    size_t size, piece;
} input_reply;

static struct event_base *base;
static struct policy *policy;
static struct fallback *fallback;
static struct limiter_stats stats;
static char *script, directory[] = "/tmp/weir-fuzz-XXXXXX";
static struct bufferevent *server;
static redisReader *commands;
static unsigned decided_count;

/* ---- the Redis server ------------------------------------------------------------------------------ */

static void send_reply(const char *bytes, size_t size)
{
    bufferevent_write(server, bytes, size);
}

/* Sends the pieces with one write each and then closes for writing. */
static void send_input_reply(void)
{
    int fd = bufferevent_getfd(server);
    evbuffer_write(bufferevent_get_output(server), fd);
    for (size_t at = 0; at < input_reply.size; at += input_reply.piece) {
        size_t n =
            input_reply.size - at < input_reply.piece ? input_reply.size - at : input_reply.piece;
        if (write(fd, input_reply.bytes + at, n) != (ssize_t)n)
            break;
    }
    shutdown(fd, SHUT_WR);
}

static bool is(const redisReply *command, const char *name)
{
    return command->elements && strcasecmp(command->element[0]->str, name) == 0;
}

static void on_command(const redisReply *command)
{
    bool call = is(command, "EVALSHA") || is(command, "EVAL");

    if (call || input_reply.to == 's')
        send_input_reply();
    else if (is(command, "SCRIPT"))
        send_reply("$40\r\n0123456789abcdef0123456789abcdef01234567\r\n", 47);
    else if (is(command, "ROLE"))
        send_reply("*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n", 24);
    else
        send_reply("+OK\r\n", 5);
}

static void on_read(struct bufferevent *stream, void *arg)
{
    char bytes[16384];
    size_t n;
    void *command;
    (void)arg;

    while ((n = bufferevent_read(stream, bytes, sizeof bytes)) > 0)
        redisReaderFeed(commands, bytes, n);
    while (redisReaderGetReply(commands, &command) == REDIS_OK && command) {
        on_command(command);
        freeReplyObject(command);
    }
}

static void close_connection(void)
{
    if (!server)
        return;
    bufferevent_free(server);
    redisReaderFree(commands);
    server = NULL;
}

static void on_event(struct bufferevent *stream, short what, void *arg)
{
    (void)stream, (void)what, (void)arg;
    close_connection();
}

static void on_accept(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *peer,
                      int size, void *arg)
{
    (void)listener, (void)peer, (void)size, (void)arg;
    close_connection();
    commands = redisReaderCreate();
    server = bufferevent_socket_new(base, fd, BEV_OPT_CLOSE_ON_FREE);
    bufferevent_setcb(server, on_read, NULL, on_event, NULL);
    bufferevent_enable(server, EV_READ | EV_WRITE);
}

static void remove_directory(void)
{
    char path[64];
    snprintf(path, sizeof path, "%s/redis.sock", directory);
    unlink(path);
    rmdir(directory);
}

static void set_up(void)
{
    static struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *lua = getenv("WEIR_LUA_DIR") ? getenv("WEIR_LUA_DIR") : "lua";
    char yaml[sizeof policy_text + 64];

    signal(SIGPIPE, SIG_IGN);
    PROPERTY(log_open("/dev/null") == 0 && (base = event_base_new()) && mkdtemp(directory));
    atexit(remove_directory);
    snprintf(address.sun_path, sizeof address.sun_path, "%s/redis.sock", directory);
    PROPERTY(evconnlistener_new_bind(base, on_accept, NULL, LEV_OPT_CLOSE_ON_FREE, 16,
                                     (struct sockaddr *)&address, sizeof address));
    int n = snprintf(yaml, sizeof yaml, policy_text, directory);
    policy = policy_load_text("fuzz.yaml", (struct slice){yaml, (size_t)n}, lua, stderr);
    PROPERTY(policy && (script = compose_driver(policy, lua, stderr)));
    PROPERTY((fallback = fallback_new(100)) &&
             counter_table_grow(&stats.by_limit, policy->limit_count));
}

/* ---- the expected result -------------------------------------------------------------------- */

/* Returns whether the `count` elements from `at` on are numbers. */
static bool numbers_at(const struct redis_reply *reply, size_t at, size_t count)
{
    if (reply->count < at + count)
        return false;
    for (size_t i = at; i < at + count; i++)
        if (!limit_reply_is_number(&reply->elements[i]))
            return false;
    return true;
}

/* Returns whether the array holds the results of `limits` limits and the time. A result has five
 * numbers; in a plain script call it has two, or a negative number and five more. The second limit,
 * `counter`, has one number more. `*admits`: all of them admit. */
static bool holds_results(const struct redis_reply *reply, unsigned limits, bool plain,
                          bool *admits)
{
    size_t at = 0;

    for (unsigned i = 0; i < limits; i++) {
        if (!numbers_at(reply, at, plain ? 2 : LIMIT_REPLY_NUMBERS))
            return false;
        if (plain && reply->elements[at].integer >= 0) {
            at += 2;
            continue;
        }
        if (!numbers_at(reply, at += plain, LIMIT_REPLY_NUMBERS))
            return false;
        *admits &= reply->elements[at].integer > 0;
        at += LIMIT_REPLY_NUMBERS;
        if (i == 1 && !numbers_at(reply, at++, 1))
            return false;
    }
    return reply->count == at + 1 && numbers_at(reply, at, 1);
}

/* The same for an array, or for a text with numbers of 8 bytes, at most four. */
static bool is_valid_reply(const struct redis_reply *reply, unsigned limits, bool plain,
                           bool *admits)
{
    struct redis_reply elements[4], array = {.type = RESP_ARRAY, .elements = elements};

    *admits = true;
    if (reply->type == RESP_ARRAY)
        return holds_results(reply, limits, plain, admits);
    if (reply->type != RESP_STRING || reply->text.n > 32 || reply->text.n % 8 != 0)
        return false;
    array.count = reply->text.n / 8;
    for (unsigned i = 0; i < array.count; i++) {
        uint64_t number = 0;
        for (unsigned j = 8; j-- > 0;)
            number = number << 8 | (unsigned char)reply->text.p[8 * i + j];
        elements[i] = (struct redis_reply){.type = RESP_INTEGER, .integer = (int64_t)number};
    }
    return holds_results(&array, limits, plain, admits);
}

/* Returns whether the input starts with a valid reply for `limits` limits. The rule with one limit
 * uses the plain script call; one of the others has best_effort. `*admits`: all limits admit. */
static bool input_starts_with_valid_reply(unsigned limits, bool *admits)
{
    redisReader *reader = redisReaderCreate();
    struct redis_reply_reader replies = {
        0}; /* without it, hiredis allocates as many elements as the reply announces */
    unsigned unanswered = 1;
    void *found = NULL;
    redis_reply_reader_install(&replies, reader, &unanswered);
    redisReaderFeed(reader, input_reply.bytes, input_reply.size);
    bool good = redisReaderGetReply(reader, &found) == REDIS_OK && found &&
                is_valid_reply(found, limits, limits == 1, admits);

    redis_reply_free(found);
    redisReaderFree(reader);
    return good;
}

static void assert_lines(const struct text *out)
{
    PROPERTY(!out->failed);
    for (size_t i = 0; i < out->n; i++) {
        char c = out->p[i];
        PROPERTY((c >= ' ' && c < 0x7f) || (c == '\r' && i + 1 < out->n && out->p[i + 1] == '\n') ||
                 (c == '\n' && i && out->p[i - 1] == '\r'));
    }
}

static void assert_response_fields(const struct decision *d)
{
    char bytes[4096];
    struct text fields = text_over(bytes, sizeof bytes);

    decision_fields_write(&fields, d, headers_named("x-ratelimit x-rate-limit ietf"), 1, NULL);
    assert_lines(&fields);
    fields = text_over(bytes, sizeof bytes);
    decision_fields_write(&fields, d, headers_named("x-ratelimit-epoch"),
                          UINT64_C(1763733600000000), NULL);
    assert_lines(&fields);
    PROPERTY(decision_retry_after(d) >= -1);
    for (unsigned i = 0; i < d->result_count; i++)
        PROPERTY(d->results[i].remaining >= 0 && d->results[i].reset_us >= 0 &&
                 d->results[i].next_us >= 0);
    if (d->verdict != VERDICT_LIMITED)
        return;
    struct decision later = *d;
    decision_spread(&later, SHARE_WHOLE, UINT64_MAX);
    PROPERTY(decision_retry_after(&later) >= decision_retry_after(d));
    struct text problem = text_over(bytes, sizeof bytes);
    decision_problem_write(&problem, &later, 429, NULL);
    PROPERTY(!problem.failed);
}

/* ---- the run --------------------------------------------------------------------------------- */

static void on_decided(struct decision_request *decision_request)
{
    PROPERTY(decision_request->op == NULL);
    decided_count++;
}

/* Runs the event loop until the decision is made, or with `ready` until the Redis connection is
 * ready or has failed. */
static void run_loop_until(struct limiter *limiter, bool ready)
{
    for (unsigned iterations = 0; ready ? !limiter_redis_ready(limiter) : !decided_count;
         iterations++) {
        PROPERTY(iterations < ITERATIONS_MAX);
        limiter_flush(limiter);
        event_base_loop(base, EVLOOP_ONCE);
        if (ready && input_reply.to == 's' && iterations > 8 && !server)
            return;
    }
}

static void decide(struct limiter *limiter, struct decision_request *decision_request)
{
    static const struct fields none;
    struct identity identity = {.is_id = true, .size = 4, .text = "id:a"};
    const struct rule *rule = &policy->rules[input_reply.to == 'm'];
    struct limit_facts facts = {
        .rule = rule, .identity = &identity, .method = SLICE("GET"), .fields = &none};
    bool admits;

    *decision_request = (struct decision_request){.decided = on_decided, .wants_charge = true};
    decided_count = limiter_decide(limiter, &facts, decision_request) == DECIDED_NOW;
    run_loop_until(limiter, false);
    PROPERTY(decided_count == 1);
    if (input_reply.to == 's')
        return;
    if (!input_starts_with_valid_reply(rule->limit_count, &admits))
        PROPERTY(decision_request->decision.verdict == VERDICT_FAILED_CLOSED);
    else
        PROPERTY(decision_request->decision.verdict ==
                 (admits ? VERDICT_ALLOWED : VERDICT_LIMITED));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct decision_request decision_request;

    if (!base)
        set_up();
    if (size < 1 || strchr("cms", data[0]) == NULL || data[0] == 0 || size > 16384)
        return 0;
    char *bytes = fuzz_copy(data + 1, size - 1);
    uint32_t choice = fuzz_choice(data, size);
    input_reply.to = (char)data[0];
    input_reply.bytes = bytes, input_reply.size = size - 1;
    /* A limited number: a socket buffer holds about 270 pieces, even small ones. */
    input_reply.piece = choice & 1 ? size : size / 128 + choice % 61 + 1;

    struct limiter *limiter = limiter_new(base, policy, fallback, slice_of(script), &stats);
    PROPERTY(limiter != NULL);
    run_loop_until(limiter, true);
    decide(limiter, &decision_request);
    assert_response_fields(&decision_request.decision);
    if (choice & 2)
        limiter_adjust(&decision_request,
                       &(struct charge_outcome){.status = 200, .cost = choice & 4 ? LIMIT_MAX : 0});
    else
        limiter_refund(&decision_request, NULL);
    limiter_flush(limiter);
    limiter_free(limiter);
    close_connection();
    event_base_loop(base, EVLOOP_NONBLOCK);
    free(bytes);
    return 0;
}
