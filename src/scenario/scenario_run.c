/* scenario_run.c - see scenario_run.h. A request goes this way:
 *
 *   decide_step() --> a slot of the ring,  until its decision has arrived --> record()
 *                                                                          |
 *            a request whose end matters, until then: `open` <-------------'
 *
 * Decisions are recorded in order. Requests whose end changes nothing are sent in batches. Before
 * and after a request whose end matters, all earlier decisions have arrived: its end gives back
 * units, or adjusts a charge, before the next request is decided. */
#include "scenario/scenario_run.h"

#include <inttypes.h>
#include <stdlib.h>
#include <sys/queue.h>

#include "base/clock.h"
#include "base/memory.h"
#include "redis/embedded.h"
#include "replay/replay_policy.h"

enum {
    RING_SIZE = 1024,  /* requests without a recorded decision */
    FLUSH_EVERY = 64,  /* requests: a whole call of the limiter */
    OPEN_MAX = 100000, /* requests that have not ended */
};
static const uint64_t connect_us = 3000000, progress_us = 200000;

/* A request under way. */
struct running {
    struct replay_decision decision;
    const struct scenario_step *step;
    uint64_t number;
    int64_t now_us, repeat; /* repeat: in its step, from 0 */
    int64_t end_us;
    TAILQ_ENTRY(running) entry;
};

struct run {
    struct scenario_runner *runner;
    const struct scenario *scenario;
    struct policy *policy;
    struct replay_engine *engine;
    struct scenario_result *result;
    struct running *ring[RING_SIZE]; /* used ones: first .. first + used - 1, modulo RING_SIZE */
    unsigned first, used, unsent;
    TAILQ_HEAD(running_list, running) open; /* by end_us */
    unsigned open_count;
    struct step_result *came; /* of the step whose decisions are recorded */
    bool failed;
};

/* --- Progress --------------------------------------------------------------------------------- */

static void show_progress(const struct run *run)
{
    struct scenario_runner *runner = run->runner;
    uint64_t now = clock_us();

    if (!runner->progress || now - runner->shown_us < progress_us)
        return;
    runner->shown_us = now;
    fprintf(stderr, "\rtest %u of %u, %" PRIu64 " requests: %.60s\033[K", runner->number,
            runner->total, run->result->requests, run->scenario->name);
}

void scenario_clear_progress(struct scenario_runner *runner)
{
    if (runner->progress && runner->shown_us)
        fputs("\r\033[K", stderr);
    runner->shown_us = 0;
}

static void redis_failed(struct run *run)
{
    if (!run->failed) {
        scenario_clear_progress(run->runner);
        fprintf(stderr,
                "weir: test: the private Redis has failed or is full, in the test of %s:%u\n",
                run->result->file->path, run->scenario->position.line);
    }
    run->failed = true;
}

/* --- The end of a request --------------------------------------------------------------------- */

static int64_t stated(const struct scenario_step *step, const struct limit *limit)
{
    int64_t cost = -1;

    for (const struct stated_cost *at = step->costs; at; at = at->next)
        if (!at->limit || at->limit == limit)
            cost = at->limit || cost < 0 ? at->cost : cost;
    return cost;
}

/* What the response of a request states: `cost` for the rule, and for each limit. */
static struct virtual_response response_of(const struct running *r)
{
    const struct rule *rule = r->decision.rule;
    struct virtual_response response = {.status = r->step->status, .cost = -1};

    for (const struct stated_cost *at = r->step->costs; at && rule->cost_response; at = at->next)
        if (!at->limit)
            response.cost = at->cost;
    for (unsigned i = 0; i < rule->limit_count; i++)
        response.own_costs[i] = stated(r->step, rule->limits[i]);
    return response;
}

static void finish_step(struct run *run, struct running *r, int64_t now_us)
{
    if (r->decision.kind == REPLAY_DECIDED) {
        struct virtual_response response = response_of(r);
        replay_engine_finish(run->engine, &r->decision, now_us, &response);
    }
    free(r);
}

/* Requests with the same duration are entered at the end. */
static void keep_open(struct run *run, struct running *r)
{
    struct running *before = TAILQ_LAST(&run->open, running_list);

    while (before && before->end_us > r->end_us)
        before = TAILQ_PREV(before, running_list, entry);
    if (before)
        TAILQ_INSERT_AFTER(&run->open, before, r, entry);
    else
        TAILQ_INSERT_HEAD(&run->open, r, entry);
    run->open_count++;
}

/* Ends the requests that end until `now_us`. */
static void close_until(struct run *run, int64_t now_us)
{
    struct running *r;

    // NOLINTNEXTLINE(clang-analyzer-unix.Malloc): it leaves the list before it is freed
    while ((r = TAILQ_FIRST(&run->open)) && r->end_us <= now_us) {
        TAILQ_REMOVE(&run->open, r, entry);
        run->open_count--;
        finish_step(run, r, r->end_us);
    }
}

/* --- Recording -------------------------------------------------------------------------------- */

static unsigned response_status(const struct running *r, bool admitted)
{
    const struct decision *d = &r->decision.request.decision;

    if (r->decision.kind != REPLAY_DECIDED)
        return r->decision.status;
    if (admitted)
        return r->step->status;
    return d->verdict == VERDICT_FAILED_CLOSED ? 503 : r->decision.rule->rejection.status;
}

static void fill_outcome(struct outcome *o, const struct running *r, bool admitted)
{
    const struct replay_decision *decision = &r->decision;

    o->number = r->number;
    o->now_us = r->now_us;
    o->kind = decision->kind;
    o->why = decision->why;
    o->admitted = admitted;
    o->status = response_status(r, admitted);
    o->rule = decision->rule;
    o->decision = decision->request.decision;
    o->client_size = decision->client_size;
    memcpy(o->client, decision->client, decision->client_size);
    memset(o->units, 0, sizeof o->units);
    if (decision->kind == REPLAY_DECIDED && admitted) {
        struct virtual_response response = response_of(r);
        replay_engine_units(decision, &response, o->units);
    }
}

/* The response states a cost that no limit of the rule takes: the test would show nothing. */
static void check_costs(struct run *run, const struct running *r, const struct outcome *o)
{
    const struct rule *rule = r->decision.rule;
    bool taken = r->decision.kind != REPLAY_DECIDED || rule->cost_response || !o->admitted;

    for (unsigned i = 0; !taken && i < rule->limit_count; i++)
        taken = rule->limits[i]->own_cost && limit_cost_is_adjusted(rule->limits[i]->own_cost);
    if (!taken)
        scenario_fail(run->result, r->step, o, r->step->position,
                      "cost: a rule or a limit that takes its cost from the response",
                      "a rule whose cost does not depend on the response");
}

/* Counts a decided request. Its memory goes to `open`, or is freed. */
static void record(struct run *run, struct running *r)
{
    const struct scenario_step *step = r->step;
    struct step_result *came = run->came;
    bool admitted =
        r->decision.kind == REPLAY_DECIDED && decision_admits(&r->decision.request.decision);
    struct outcome *first = admitted ? &came->first_admitted : &came->first_rejected;

    if (r->repeat == 0)
        came->admitted = came->rejected = came->first_admitted.number =
            came->first_rejected.number = 0;
    *(admitted ? &came->admitted : &came->rejected) += 1;
    if (!first->number)
        fill_outcome(first, r, admitted);
    if (r->repeat == step->repeat - 1) {
        fill_outcome(&came->last, r, admitted);
        if (step->costs)
            check_costs(run, r, &came->last);
        expectations_check(step, came, run->result);
    }
    if (!r->decision.end_matters || !admitted) {
        finish_step(run, r, r->now_us);
        return;
    }
    r->end_us += r->decision.request.decision.delay_us;
    keep_open(run, r);
}

/* Records decisions that have arrived, oldest first. */
static void record_decided(struct run *run)
{
    struct running *r;

    while (run->used && !(r = run->ring[run->first])->decision.pending) {
        run->first = (run->first + 1) % RING_SIZE;
        run->used--;
        record(run, r);
    }
}

/* Sends what is gathered and takes what has arrived. `wait`: blocks until something arrives. */
static void run_loop(struct run *run, bool wait)
{
    replay_engine_flush(run->engine);
    event_base_loop(run->runner->base, wait ? EVLOOP_ONCE : EVLOOP_NONBLOCK);
    record_decided(run);
    if (!replay_engine_ready(run->engine))
        redis_failed(run);
    show_progress(run);
}

static void await_decisions(struct run *run)
{
    record_decided(run);
    while (run->used && !run->failed)
        run_loop(run, true);
}

/* --- Requests --------------------------------------------------------------------------------- */

static bool find_row(const void *context, struct slice identity, struct quota_row *row)
{
    const struct scenario *scenario = context;

    for (const struct scenario_quota *at = scenario->quotas; at; at = at->next)
        if (slice_equal(identity_text(&at->identity), identity)) {
            *row = at->row;
            return true;
        }
    return false;
}

static void decide_step(struct run *run, const struct scenario_step *step, int64_t repeat,
                        int64_t now_us)
{
    struct running *r = xcalloc(1, sizeof *r);
    const struct virtual_request request = {
        .now_us = now_us,
        .method = step->method,
        .target = step->target,
        .host = step->host,
        .field_lines = step->field_lines,
        .field_count = step->field_count,
        .content = step->content,
        .claims = step->claims,
        .address = step->address,
        .client = step->client,
        .https = step->https,
        .wants_units = true,
        .quotas = {quotas_are_set(&run->policy->quotas) ? find_row : NULL, run->scenario}};

    r->step = step;
    r->number = ++run->result->requests;
    r->repeat = repeat;
    r->now_us = now_us;
    r->end_us = now_us + step->duration_us;
    run->ring[(run->first + run->used++) % RING_SIZE] = r;
    replay_engine_decide(run->engine, &request, &r->decision);
    if (r->decision.end_matters)
        await_decisions(run);
    else if (++run->unsent >= FLUSH_EVERY || run->used == RING_SIZE) {
        run_loop(run, false);
        run->unsent = 0;
    }
    while (run->used == RING_SIZE && !run->failed)
        run_loop(run, true);
}

/* Ends what has ended by then. Earlier decisions must have arrived. */
static void end_until(struct run *run, int64_t now_us)
{
    const struct running *next = TAILQ_FIRST(&run->open);

    if (!next || next->end_us > now_us)
        return;
    await_decisions(run);
    close_until(run, now_us);
}

static void run_steps(struct run *run)
{
    int64_t now_us = run->scenario->start_us;

    for (const struct scenario_step *step = run->scenario->steps; step; step = step->next) {
        now_us += step->wait_us;
        for (int64_t i = 0; step->is_request && i < step->repeat && !run->failed; i++) {
            now_us += i ? step->every_us : 0;
            end_until(run, now_us);
            decide_step(run, step, i, now_us);
            if (run->open_count > OPEN_MAX) {
                scenario_clear_progress(run->runner);
                fprintf(stderr, "%s:%u:%u: more than %d requests at once\n",
                        run->result->file->path, step->position.line, step->position.column,
                        OPEN_MAX);
                run->failed = true;
            }
        }
    }
    await_decisions(run);
    run->result->virtual_us = now_us - run->scenario->start_us;
}

/* --- A test ----------------------------------------------------------------------------------- */

/* If Redis has failed, the ring has requests, and the engine decides those that are pending. */
static void run_end(struct run *run)
{
    close_until(run, INT64_MAX);
    for (unsigned i = 0; i < run->used; i++) {
        struct running **at = &run->ring[(run->first + i) % RING_SIZE];
        if (!(*at)->decision.pending) {
            finish_step(run, *at, (*at)->now_us);
            *at = NULL;
        }
    }
    replay_engine_free(run->engine);
    for (unsigned i = 0; i < run->used; i++)
        free(run->ring[(run->first + i) % RING_SIZE]);
    free(run->came);
}

bool scenario_run(struct scenario_runner *runner, struct scenario_file *file,
                  const struct scenario *scenario, struct scenario_result *result)
{
    static const struct address no_address;
    struct run run = {.runner = runner,
                      .scenario = scenario,
                      .policy = file->policy,
                      .result = result,
                      .came = xcalloc(1, sizeof *run.came)};
    char prefix[32];

    *result = (struct scenario_result){.file = file, .scenario = scenario};
    result->end = &result->failures;
    TAILQ_INIT(&run.open);
    snprintf(prefix, sizeof prefix, "test-%u", ++runner->number); /* tests share no keys */
    replay_policy_isolate(file->policy,
                          runner->redis ? embedded_address(runner->redis) : &no_address, prefix);
    run.engine = replay_engine_new(runner->base, file->policy, runner->lua_dir);
    if (!run.engine)
        run.failed = true;
    else if (!replay_engine_connect(run.engine, connect_us))
        redis_failed(&run);
    else
        run_steps(&run);
    run_end(&run);
    return !run.failed;
}

void scenario_result_free(struct scenario_result *result)
{
    arena_free(&result->arena);
}
