#include "scenario/test_command.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "redis/embedded.h"
#include "scenario/scenario_run.h"

struct session {
    const struct test_order *order;
    struct scenario_file *files; /* as many as order->file_count */
    struct scenario_runner runner;
    struct scenario_totals totals;
    bool needs_redis;
};

/* Reads all files, so that all mistakes are reported. */
static bool read_files(struct session *s)
{
    bool good = true;

    for (unsigned i = 0; i < s->order->file_count; i++) {
        struct scenario_file *file = &s->files[i];
        file->path = s->order->files[i];
        good &= scenario_file_read(file, s->order->policy, s->order->lua_dir);
        s->needs_redis |= file->policy && policy_needs_redis(file->policy);
        s->runner.total += file->count;
    }
    return good;
}

static bool start_redis(struct session *s)
{
    if (s->needs_redis &&
        !(s->runner.redis = embedded_start_private("weir test runs limits in a private Redis")))
        return false;
    s->runner.base = event_base_new();
    return s->runner.base != NULL;
}

static bool run_file(struct session *s, struct scenario_file *file)
{
    for (const struct scenario *test = file->scenarios; test; test = test->next) {
        struct scenario_result result;
        bool good = scenario_run(&s->runner, file, test, &result);
        scenario_clear_progress(&s->runner);
        if (good) {
            s->totals.tests++;
            s->totals.failed += result.failure_count > 0;
            s->totals.requests += result.requests;
            s->order->format->result(&result, s->totals.tests);
            fflush(stdout);
        }
        scenario_result_free(&result);
        if (!good)
            return false;
    }
    return true;
}

static bool run_all(struct session *s)
{
    uint64_t since = clock_us();
    bool good = true;

    if (s->order->format->begin)
        s->order->format->begin(s->runner.total);
    fflush(stdout);
    for (unsigned i = 0; i < s->order->file_count && good; i++)
        good = run_file(s, &s->files[i]);
    s->totals.took_us = clock_us() - since;
    s->totals.complete = good;
    s->order->format->end(&s->totals);
    fflush(stdout);
    return good && s->totals.failed == 0;
}

int scenario_test(const struct test_order *order)
{
    struct session s = {.order = order,
                        .files = xcalloc(order->file_count, sizeof *s.files),
                        .runner = {.lua_dir = order->lua_dir, .progress = order->progress}};

    log_set_level(LEVEL_WARN);
    bool good = read_files(&s) && start_redis(&s) && run_all(&s);
    if (s.runner.base)
        event_base_free(s.runner.base);
    embedded_stop(s.runner.redis);
    for (unsigned i = 0; i < order->file_count; i++)
        scenario_file_free(&s.files[i]);
    free(s.files);
    return good ? 0 : 1;
}
