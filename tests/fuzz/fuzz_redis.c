/* fuzz_redis.c - any bytes as what Redis answers, over a socket, to a decision or to what weir asks when it connects:
 * each decision is made once; Redis admits or rejects by a whole reply of the agreed shape and by nothing else, and
 * whatever it says, the answer's fields are lines of digits, tokens and quoted strings.
 *
 * The first byte chooses what the rest answers: 'c' a request with one limit, 'm' one with several, 's' the set-up. */
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/listener.h>
#include <signal.h>
#include <unistd.h>

#include "../unit/headers_named.h"
#include "base/log.h"
#include "base/values.h"
#include "config/policy_file.h"
#include "decision/problem.h"
#include "fuzz.h"
#include "limit/limiter.h"
#include "limit/limiter_state.h"
#include "redis/reply_reader.h"
#include "script/compose.h"

enum { TURNS_MAX = 10000 };

static const char policy_text[] =
    "redis: { address: 'unix:%s/redis.sock', timeout: 10s, on_failure: deny }\n"
    "upstreams: { api: { servers: [ 127.0.0.1:1 ] } }\n"
    "limits:\n"
    "  one: { script: token_bucket, limit: 100, period: 1d, burst: 20 }\n"
    "  counter: { script: sliding_window_counter, limit: 50, period: 1h, count: [ 200 ] }\n"
    "  window: { script: fixed_window, limit: 10, period: 1h, dedup: Idempotency-Key }\n"
    "rules:\n"
    "  - { match: { path: /one }, limits: [ one ] }\n"
    "  - { limits: [ one, counter, window ], cost: { response_header: X-Cost } }\n";

/* What the server answers with, and to what. */
static struct {
    char to;
    const char *bytes;
    size_t size, piece;
} answer;

static struct event_base *base;
static struct policy *policy;
static struct fallback *fallback;
static struct limiter_stats stats;
static char *script, directory[] = "/tmp/weir-fuzz-XXXXXX";
static struct bufferevent *server;
static redisReader *asked;
static unsigned decided_count;

/* ---- the server ------------------------------------------------------------------------------ */

static void say(const char *bytes, size_t size)
{
    bufferevent_write(server, bytes, size);
}

/* In pieces, each a write of its own; then nothing more comes. */
static void say_the_input(void)
{
    int fd = bufferevent_getfd(server);
    evbuffer_write(bufferevent_get_output(server), fd);
    for (size_t at = 0; at < answer.size; at += answer.piece) {
        size_t n = answer.size - at < answer.piece ? answer.size - at : answer.piece;
        if (write(fd, answer.bytes + at, n) != (ssize_t)n)
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

    if (call || answer.to == 's')
        say_the_input();
    else if (is(command, "SCRIPT"))
        say("$40\r\n0123456789abcdef0123456789abcdef01234567\r\n", 47);
    else if (is(command, "ROLE"))
        say("*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n", 24);
    else
        say("+OK\r\n", 5);
}

static void on_read(struct bufferevent *stream, void *arg)
{
    char bytes[16384];
    size_t n;
    void *command;
    (void)arg;

    while ((n = bufferevent_read(stream, bytes, sizeof bytes)) > 0)
        redisReaderFeed(asked, bytes, n);
    while (redisReaderGetReply(asked, &command) == REDIS_OK && command) {
        on_command(command);
        freeReplyObject(command);
    }
}

static void hang_up(void)
{
    if (!server)
        return;
    bufferevent_free(server);
    redisReaderFree(asked);
    server = NULL;
}

static void on_event(struct bufferevent *stream, short what, void *arg)
{
    (void)stream, (void)what, (void)arg;
    hang_up();
}

static void on_accept(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *peer,
                      int size, void *arg)
{
    (void)listener, (void)peer, (void)size, (void)arg;
    hang_up();
    asked = redisReaderCreate();
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

/* ---- what is to come of it ------------------------------------------------------------------- */

/* Are `count` elements, from `at` on, numbers? */
static bool numbers_at(const struct redis_reply *reply, size_t at, size_t count)
{
    if (reply->count < at + count)
        return false;
    for (size_t i = at; i < at + count; i++)
        if (!limit_reply_is_number(&reply->elements[i]))
            return false;
    return true;
}

/* Does the array hold the answers of so many limits, and the time? Each answer is five numbers; in a plain run
 * two, or a negative one and five. Whether all admit goes to `*admits`. */
static bool holds_answers(const struct redis_reply *reply, unsigned limits, bool plain,
                          bool *admits)
{
    size_t at = 0;

    for (; limits > 0; limits--) {
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
    }
    return reply->count == at + 1 && numbers_at(reply, at, 1);
}

/* The same for an array or three numbers of 8 bytes in a text. */
static bool is_answer(const struct redis_reply *reply, unsigned limits, bool plain, bool *admits)
{
    struct redis_reply elements[3], array = {.type = RESP_ARRAY, .count = 3, .elements = elements};

    *admits = true;
    if (reply->type == RESP_ARRAY)
        return holds_answers(reply, limits, plain, admits);
    if (reply->type != RESP_STRING || reply->text.n != 24)
        return false;
    for (unsigned i = 0; i < 3; i++) {
        uint64_t number = 0;
        for (unsigned j = 8; j-- > 0;)
            number = number << 8 | (unsigned char)reply->text.p[8 * i + j];
        elements[i] = (struct redis_reply){.type = RESP_INTEGER, .integer = (int64_t)number};
    }
    return holds_answers(&array, limits, plain, admits);
}

/* Does the input begin with an answer for `limits` limits? The rule of one limit is asked in a plain run; one of the
 * others counts later. Whether it admits goes to `*admits`. */
static bool reads_as_answer(unsigned limits, bool *admits)
{
    redisReader *reader = redisReaderCreate();
    struct redis_reply_reader replies = {
        0}; /* hiredis alone makes room for as many elements as are announced */
    unsigned unanswered = 1;
    void *found = NULL;
    redis_reply_reader_install(&replies, reader, &unanswered);
    redisReaderFeed(reader, answer.bytes, answer.size);
    bool good = redisReaderGetReply(reader, &found) == REDIS_OK && found &&
                is_answer(found, limits, limits == 1, admits);

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

static void assert_says_so(const struct decision *d)
{
    char bytes[4096];
    struct text fields = text_over(bytes, sizeof bytes);

    decision_fields_write(&fields, d, headers_named("x-ratelimit x-rate-limit ietf"), 1);
    assert_lines(&fields);
    fields = text_over(bytes, sizeof bytes);
    decision_fields_write(&fields, d, headers_named("x-ratelimit-epoch"),
                          UINT64_C(1763733600000000));
    assert_lines(&fields);
    PROPERTY(decision_retry_after(d) >= -1);
    for (unsigned i = 0; i < d->result_count; i++)
        PROPERTY(d->results[i].remaining >= 0 && d->results[i].reset_us >= 0);
    if (d->verdict != VERDICT_LIMITED)
        return;
    struct decision later = *d;
    decision_spread(&later, SHARE_WHOLE, UINT64_MAX);
    PROPERTY(decision_retry_after(&later) >= decision_retry_after(d));
    struct text problem = text_over(bytes, sizeof bytes);
    decision_problem_write(&problem, &later, 429);
    PROPERTY(!problem.failed);
}

/* ---- the run --------------------------------------------------------------------------------- */

static void on_decided(struct decision_request *decision_request)
{
    PROPERTY(decision_request->op == NULL);
    decided_count++;
}

/* Turns the loop until the decision was made, or where `ready` is asked for, until the link stands or has failed. */
static void turn_until(struct limiter *limiter, bool ready)
{
    for (unsigned turns = 0; ready ? !limiter_redis_ready(limiter) : !decided_count; turns++) {
        PROPERTY(turns < TURNS_MAX);
        limiter_flush(limiter);
        event_base_loop(base, EVLOOP_ONCE);
        if (ready && answer.to == 's' && turns > 8 && !server)
            return;
    }
}

static void decide(struct limiter *limiter, struct decision_request *decision_request)
{
    static const struct fields none;
    struct identity identity = {.is_id = true, .size = 4, .text = "id:a"};
    const struct rule *rule = &policy->rules[answer.to == 'm'];
    struct limit_facts facts = {
        .rule = rule, .identity = &identity, .method = SLICE("GET"), .fields = &none};
    bool admits;

    *decision_request = (struct decision_request){.decided = on_decided, .wants_charge = true};
    decided_count = limiter_decide(limiter, &facts, decision_request) == DECIDED_NOW;
    turn_until(limiter, false);
    PROPERTY(decided_count == 1);
    if (answer.to == 's')
        return;
    if (!reads_as_answer(rule->limit_count, &admits))
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
    answer.to = (char)data[0];
    answer.bytes = bytes, answer.size = size - 1;
    /* Not too many: a socket's buffer takes some 270 pieces, however small. */
    answer.piece = choice & 1 ? size : size / 128 + choice % 61 + 1;

    struct limiter *limiter = limiter_new(base, policy, fallback, slice_of(script), &stats);
    PROPERTY(limiter != NULL);
    turn_until(limiter, true);
    decide(limiter, &decision_request);
    assert_says_so(&decision_request.decision);
    if (choice & 2)
        limiter_adjust(&decision_request, 200, choice & 4 ? COST_STATED_MAX : 0);
    else
        limiter_refund(&decision_request);
    limiter_flush(limiter);
    limiter_free(limiter);
    hang_up();
    event_base_loop(base, EVLOOP_NONBLOCK);
    free(bytes);
    return 0;
}
