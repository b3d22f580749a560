/* contract.c - tests the policy's own limiter scripts in a private Redis before they are used. One
 * call per limit; lua/contract.lua does the tests.
 *
 * A limiter that never ends blocks its Redis. That Redis is killed and the limit is run once
 * more in another, which logs each test before it runs. The last log line is the test that does
 * not end. */
#include "limit/compose.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"
#include "redis/blocking.h"
#include "redis/embedded.h"

enum {
    /* CPU time of Redis per limit; 0.3 s is usual. Elapsed time would depend on the machine's
     * load. */
    CPU_MOST_US = 2000000,
    TELL_US = 5000000, /* reserved for the second run of a limiter that never ends */
    DIAL_US = 4000000,
    LOOK_US = 50000,
    NUMBERS = 7,
    QUESTION_MAX = 1100
};

struct trial {
    const struct policy *policy;
    const char *contract; /* lua/contract.lua */
    FILE *report;
    struct embedded *server;
    struct redis_blocking *redis;
    uint64_t until_us;
    int result;
    uint64_t worked_us, waited_us; /* for the last reply: CPU time of Redis, elapsed time */
};

/* --- The private Redis ------------------------------------------------------------------------ */

static void end_server(struct trial *t)
{
    redis_blocking_free(t->redis);
    embedded_stop(t->server);
    t->redis = NULL;
    t->server = NULL;
}

static bool start_server(struct trial *t)
{
    char why[REDIS_WHY_MAX];

    if (!(t->server = embedded_start_trial()))
        return false;
    struct redis_settings settings = {.address = *embedded_address(t->server)};
    t->redis = redis_dial(&settings, DIAL_US, why);
    if (!t->redis)
        end_server(t);
    return t->redis != NULL;
}

/* --- One limit -------------------------------------------------------------------------------- */

static char *option_argument(const struct script_option *own)
{
    char *argument = NULL;
    int n = own->kind == OPTION_TEXT
                ? asprintf(&argument, "t%s", own->text)
                : asprintf(&argument, "%c%lld", own->kind == OPTION_BOOL ? 'b' : 'n',
                           (long long)own->number);
    if (n < 0)
        memory_exhausted();
    return argument;
}

static char *number_argument(int64_t number)
{
    char *argument;
    if (asprintf(&argument, "%lld", (long long)number) < 0)
        memory_exhausted();
    return argument;
}

/* False: Redis used too much CPU time, or the total time is over. A limiter that has not been
 * seen to end is rejected. */
static bool await_answer(struct trial *t)
{
    uint64_t used_us = embedded_cpu_us(t->server), since_us = clock_us();
    enum redis_awaited awaited;

    t->worked_us = 0;
    do {
        awaited = redis_await(t->redis, LOOK_US);
        uint64_t now_us = embedded_cpu_us(t->server); /* 0: Redis has died */
        t->worked_us = now_us > used_us ? now_us - used_us : t->worked_us;
        t->waited_us = clock_us() - since_us;
    } while (awaited == REDIS_AWAITED_NOTHING && t->worked_us < CPU_MOST_US &&
             since_us + t->waited_us < t->until_us);
    return awaited == REDIS_AWAITED_REPLY;
}

static const struct redis_reply *answer_to(struct trial *t, int argc, const char **argv)
{
    return redis_command_begin(t->redis, argc, argv, NULL) && await_answer(t)
               ? redis_awaited_reply(t->redis)
               : NULL;
}

/* NULL: no reply in time, or the server has exited. */
static const struct redis_reply *run_contract(struct trial *t, const struct limit *limit,
                                              const char *tell)
{
    char *numbers[] = {number_argument(limit->limit), number_argument(limit->period_us),
                       number_argument(limit->burst),
                       limit->align == ALIGN_CLOCK ? number_argument(limit->offset_us)
                                                   : xstrdup("")};
    const char *argv[5 + NUMBERS + LIMIT_OPTIONS_MAX] = {
        "EVAL",     t->contract, "0",        limit->script, limit->script_text,
        numbers[0], numbers[1],  numbers[2], numbers[3],    tell};
    int argc = 10, first = argc;

    for (unsigned i = 0; i < limit->option_count; i++)
        argv[argc++] = option_argument(&limit->options[i]);
    const struct redis_reply *reply = answer_to(t, argc, argv);
    while (argc > first)
        free((char *)(uintptr_t)argv[--argc]);
    for (size_t i = 0; i < COUNT_OF(numbers); i++)
        free(numbers[i]);
    return reply;
}

static void begin_report(const struct trial *t, const struct limit *limit)
{
    fprintf(t->report,
            "%s:%u:%u: limits.%s.script: %s breaks the contract of a limiter: ", t->policy->file,
            limit->script_position.line, limit->script_position.column, limit->name, limit->script);
}

static void end_report(const struct trial *t, const char *arguments, const char *returned)
{
    if (*arguments)
        fprintf(t->report, "    arguments: %s\n", arguments);
    if (*returned)
        fprintf(t->report, "    returned:  %s\n", returned);
    fputs("    see weir.yaml(5), LIMITER SCRIPTS\n", t->report);
}

/* Reports the test that does not end. If another server cannot be started, the test remains
 * unknown. */
static int report_endless(struct trial *t, const struct limit *limit)
{
    double worked_s = (double)t->worked_us / 1e6, waited_s = (double)t->waited_us / 1e6;
    char question[QUESTION_MAX] = "";

    end_server(t);
    if (start_server(t)) {
        t->until_us += TELL_US;
        const struct redis_reply *reply = run_contract(t, limit, "tell");
        if (!reply)
            (void)embedded_last_line(t->server, "weir contract: ", question, sizeof question);
    }
    begin_report(t, limit);
    fprintf(t->report,
            "it does not end, is far too slow or uses too much memory: Redis, which is blocked "
            "meanwhile, had not replied after %.1f s of CPU time in %.1f s\n",
            worked_s, waited_s);
    end_report(t, question, "");
    end_server(t);
    return 1;
}

/* contract_check() for one limit. */
static int try_limit(struct trial *t, const struct limit *limit)
{
    const struct redis_reply *reply = run_contract(t, limit, "");
    struct slice problem, arguments, returned;
    int result = 1;

    if (!reply)
        return report_endless(t, limit);
    if (redis_reply_read(reply, ""))
        result = 0;
    else {
        begin_report(t, limit);
        if (redis_reply_read(reply, "sss", &problem, &arguments, &returned)) {
            fprintf(t->report, "%s\n", problem.p);
            end_report(t, arguments.p, returned.p);
        } else
            fprintf(t->report, "%s\n",
                    reply->type == RESP_ERROR ? reply->text.p : "no reply in the expected format");
    }
    return result;
}

/* --- All -------------------------------------------------------------------------------------- */

static bool same_options(const struct limit *a, const struct limit *b)
{
    bool same = a->option_count == b->option_count;
    for (unsigned i = 0; same && i < a->option_count; i++) {
        const struct script_option *x = &a->options[i], *y = &b->options[i];
        same = x->kind == y->kind && x->number == y->number &&
               (x->kind != OPTION_TEXT || strcmp(x->text, y->text) == 0);
    }
    return same;
}

static bool is_tried_before(const struct policy *policy, const struct limit *limit)
{
    for (const struct limit *other = policy->limits; other < limit; other++)
        if (other->kind == LIMIT_CUSTOM && strcmp(other->script, limit->script) == 0 &&
            other->limit == limit->limit && other->burst == limit->burst &&
            other->period_us == limit->period_us && other->align == limit->align &&
            other->offset_us == limit->offset_us && same_options(other, limit))
            return true;
    return false;
}

static int try_all(struct trial *t)
{
    for (unsigned i = 0; i < t->policy->limit_count; i++) {
        const struct limit *limit = &t->policy->limits[i];
        if (limit->kind != LIMIT_CUSTOM || is_tried_before(t->policy, limit))
            continue;
        if (clock_us() >= t->until_us) {
            fprintf(t->report,
                    "warning: %s:%u:%u: limits.%s.script and the following ones were not tested: "
                    "the time ran out\n",
                    t->policy->file, limit->script_position.line, limit->script_position.column,
                    limit->name);
            return 0;
        }
        int result = try_limit(t, limit);
        if (result != 0)
            return result;
    }
    return 0;
}

static void check(void *trial)
{
    struct trial *t = trial;

    if (start_server(t))
        t->result = try_all(t);
}

int contract_check(const struct policy *policy, const char *lua_dir, FILE *report)
{
    char *contract = compose_contract(lua_dir, report);
    struct trial t = {.policy = policy,
                      .contract = contract,
                      .report = report,
                      .until_us = clock_us() + CONTRACT_ALL_US - TELL_US,
                      .result = -1};

    if (!contract)
        return 1;
    bool has_memory = memory_try(check, &t);
    end_server(&t);
    free(contract);
    if (!has_memory)
        memory_exhausted();
    return t.result;
}
