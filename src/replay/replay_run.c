/* replay_run.c - see replay_run.h. A pass:
 *
 *   log_merge_next() -> a slot of the ring -> replay_engine_decide() of each policy
 *   the oldest slot is decided by all -> statistics, and the slot is free
 *
 * The ring keeps the requests in order and bounds the number of decisions in progress. Suggestions
 * are found by further passes, in which every limit only counts. */
#include "replay/replay_run.h"

#include <event2/event.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "policy/identity.h"
#include "redis/embedded.h"
#include "replay/replay_engine.h"
#include "replay/replay_policy.h"
#include "replay/replay_search.h"

enum {
    RING_SIZE = 4096, /* requests in progress */
    FLUSH_EVERY = 64, /* requests: a whole call of the limiter */
    TARGET_MAX = REPLAY_TEXT_MAX
};
static const uint64_t connect_us = 10000000, progress_us = 200000;
/* If the first pass takes longer, suggestions are searched only on request. */
static const uint64_t suggest_max_us = 20000000;

struct slot {
    struct replay_request request;
    unsigned status;
    char method[32], target[TARGET_MAX];
    struct replay_decision decisions[2];
};

struct pass {
    const struct replay_order *order;
    struct replay_summary *summary; /* counts of this pass */
    struct event_base *base;
    struct log_merge *merge;
    struct embedded *redis;
    unsigned count;
    struct replay_engine *engines[2];
    struct slot *ring;
    unsigned first, used;         /* slots in use: first .. first + used - 1, modulo RING_SIZE */
    unsigned number, numbers_max; /* of this pass, for the progress bar; numbers_max 0: one pass */
    uint64_t started_us, shown_us;
    bool failed;
};

/* --- Progress --------------------------------------------------------------------------------- */

static void show_progress(struct pass *p)
{
    uint64_t now = clock_us();
    struct log_counts counts;

    if (!p->order->progress || now - p->shown_us < progress_us)
        return;
    p->shown_us = now;
    counts = log_merge_counts(p->merge);
    double seconds = (double)(now - p->started_us) / 1e6;
    if (p->numbers_max)
        fprintf(stderr, "\rsuggestions: pass %u of at most %u, ", p->number, p->numbers_max);
    else
        fputs("\r", stderr);
    if (counts.bytes_total)
        fprintf(stderr, "%.0f %%, ", 100.0 * (double)counts.bytes / (double)counts.bytes_total);
    fprintf(stderr, "%" PRIu64 " lines, %.0f lines/s\033[K", counts.lines,
            (double)counts.lines / seconds);
}

static void clear_progress(const struct pass *p)
{
    if (p->order->progress)
        fputs("\r\033[K", stderr);
}

/* --- The ring --------------------------------------------------------------------------------- */

static struct slot *slot_at(struct pass *p, unsigned index)
{
    return &p->ring[(p->first + index) % RING_SIZE];
}

static bool slot_pending(const struct pass *p, const struct slot *slot)
{
    for (unsigned i = 0; i < p->count; i++)
        if (slot->decisions[i].pending)
            return true;
    return false;
}

static bool request_is_rejected(const struct replay_decision *decision)
{
    return decision->kind == REPLAY_BLOCKED ||
           (decision->kind == REPLAY_DECIDED && !decision_admits(&decision->request.decision));
}

static void count_one(struct replay_stats *stats, struct slot *slot,
                      struct replay_decision *decision)
{
    slot->request.client = decision->client_size
                               ? (struct slice){decision->client, decision->client_size}
                               : SLICE("-");
    if (decision->kind == REPLAY_REFUSED)
        replay_stats_refuse(stats, &slot->request, decision->why);
    else if (decision->kind == REPLAY_BLOCKED)
        replay_stats_block(stats, &slot->request);
    else
        replay_stats_decide(stats, &slot->request, &decision->request.decision);
}

/* A log has the status of a response, and not the cost that it stated. */
static void finish_one(struct pass *p, unsigned policy, struct slot *slot)
{
    struct virtual_response response = {.status = slot->status, .cost = -1};

    memset(response.own_costs, 0xff, sizeof response.own_costs);
    replay_engine_finish(p->engines[policy], &slot->decisions[policy], slot->request.time_us,
                         &response);
}

static void fail_pass(struct pass *p)
{
    if (!p->failed) {
        clear_progress(p);
        fputs("weir: the private Redis has failed or is full. It may use a quarter of the memory "
              "of the\n"
              "machine, or of the limit of its cgroup; replay fewer logs at a time.\n",
              stderr);
    }
    p->failed = true;
}

static void count_slot(struct pass *p, struct slot *slot)
{
    bool first, second;

    for (unsigned i = 0; i < p->count; i++) {
        count_one(&p->summary->results[i].stats, slot, &slot->decisions[i]);
        finish_one(p, i, slot);
    }
    for (unsigned i = 0; i < p->count; i++) /* weir's own limiters fail only if Redis does */
        if (p->summary->results[i].stats.failed &&
            !policy_has_custom_limits(p->summary->results[i].policy))
            fail_pass(p);
    if (p->count < 2)
        return;
    first = request_is_rejected(&slot->decisions[0]);
    second = request_is_rejected(&slot->decisions[1]);
    p->summary->both += first && second;
    p->summary->only_first += first && !second;
    p->summary->only_second += second && !first;
}

/* Counts the decided requests, oldest first. */
static void count_decided(struct pass *p)
{
    while (p->used && !slot_pending(p, slot_at(p, 0))) {
        count_slot(p, slot_at(p, 0));
        p->first = (p->first + 1) % RING_SIZE;
        p->used--;
    }
}

/* Sends what is gathered and takes what has arrived. `wait`: blocks until something arrives. */
static void run_loop(struct pass *p, bool wait)
{
    for (unsigned i = 0; i < p->count; i++)
        replay_engine_flush(p->engines[i]);
    event_base_loop(p->base, wait ? EVLOOP_ONCE : EVLOOP_NONBLOCK);
    count_decided(p);
    for (unsigned i = 0; i < p->count; i++)
        if (!replay_engine_ready(p->engines[i]))
            fail_pass(p);
    show_progress(p);
}

static void decide_rest(struct pass *p)
{
    while (p->used && !p->failed)
        run_loop(p, slot_pending(p, slot_at(p, 0)));
}

/* --- A pass ----------------------------------------------------------------------------------- */

static void copy_slice(struct slice from, char *room, size_t size, struct slice *to)
{
    *to = (struct slice){room, from.n < size ? from.n : size};
    memcpy(room, from.p, to->n);
}

/* Converts a line. `name` is room for the client: the one that weir logged, or the user as an
 * id. */
static struct virtual_request request_of(const struct pass *p, const struct log_line *line,
                                         struct text *name)
{
    const struct replay_options *options = &p->order->options;

    if (line->client.n)
        identity_write_name(name, line->client);
    else if (options->user_is_id && line->user.n) {
        text_literal(name, "id:");
        text_put(name, line->user);
    }
    return (struct virtual_request){.now_us = line->time_us,
                                    .method = line->method,
                                    .target = line->target,
                                    .host = line->host.n ? line->host : slice_of(options->host),
                                    .address = line->address,
                                    .client = text_slice(name)};
}

/* Decides one request. If a charge depends on the response, the next request waits for it. */
static void decide_line(struct pass *p, const struct log_line *line, const char *file,
                        uint64_t number)
{
    struct slot *slot = slot_at(p, p->used++);
    char name[REPLAY_CLIENT_MAX];
    struct text client = text_over(name, sizeof name);
    const struct virtual_request request = request_of(p, line, &client);
    bool end_matters = false;

    slot->request = (struct replay_request){.time_us = line->time_us, .file = file, .line = number};
    slot->status = line->status;
    copy_slice(line->method, slot->method, sizeof slot->method, &slot->request.method);
    copy_slice(line->target, slot->target, sizeof slot->target, &slot->request.target);
    for (unsigned i = 0; i < p->count; i++) {
        replay_engine_decide(p->engines[i], &request, &slot->decisions[i]);
        end_matters |= slot->decisions[i].end_matters;
    }
    if (end_matters)
        decide_rest(p);
}

static void read_logs(struct pass *p)
{
    struct replay_summary *s = p->summary;
    const struct log_line *line;
    const char *file;
    uint64_t number;
    unsigned since_flush = 0;

    while (!p->failed && (line = log_merge_next(p->merge, &file, &number))) {
        if (s->logs.requests++ == 0)
            s->first_us = line->time_us;
        s->last_us = line->time_us;
        decide_line(p, line, file, number);
        if (++since_flush >= FLUSH_EVERY || p->used == RING_SIZE) {
            run_loop(p, false);
            since_flush = 0;
        }
        while (p->used == RING_SIZE && !p->failed)
            run_loop(p, true);
    }
    decide_rest(p);
}

static bool load_policies(struct pass *p, const struct replay_search *search)
{
    static const char *const prefixes[2] = {"a", "b"};

    for (unsigned i = 0; i < p->count; i++) {
        struct replay_result *result = &p->summary->results[i];
        result->policy = replay_policy_load(p->order->policies[i], p->order->lua_dir,
                                            embedded_address(p->redis), prefixes[i], result);
        if (!result->policy)
            return false;
        if (search)
            replay_search_apply(&search[i], result->policy);
        p->engines[i] = replay_engine_new(p->base, result->policy, p->order->lua_dir);
        if (!p->engines[i])
            return false;
        if (!replay_engine_connect(p->engines[i], connect_us)) {
            fputs("weir: the private Redis does not answer\n", stderr);
            return false;
        }
        replay_stats_init(&result->stats, result->policy->limit_count);
    }
    return true;
}

static void pass_end(struct pass *p)
{
    clear_progress(p);
    p->used = 0;
    for (unsigned i = 0; i < 2; i++)
        replay_engine_free(p->engines[i]);
    free(p->ring);
    log_merge_close(p->merge);
    if (p->base)
        event_base_free(p->base);
    embedded_stop(p->redis);
}

/* Reads the logs once. `search` (by policy; NULL: none) changes limits. Returns false after
 * printing the error. */
static bool run_pass(const struct replay_order *order, const struct replay_search *search,
                     unsigned number, unsigned numbers_max, struct replay_summary *summary)
{
    struct pass p = {.order = order,
                     .summary = summary,
                     .count = summary->result_count,
                     .number = number,
                     .numbers_max = numbers_max,
                     .base = event_base_new(),
                     .redis =
                         embedded_start_private("weir replay decides requests in a private Redis"),
                     .ring = xcalloc(RING_SIZE, sizeof *p.ring)};
    bool good = p.base && p.redis && load_policies(&p, search) &&
                (p.merge = log_merge_open(order->logs, order->log_count)) != NULL;

    p.started_us = clock_us();
    if (good) {
        read_logs(&p);
        summary->logs = log_merge_counts(p.merge);
        summary->took_us = clock_us() - p.started_us;
        p.failed |= summary->logs.failed;
    }
    pass_end(&p);
    return good && !p.failed;
}

/* --- Suggestions ------------------------------------------------------------------------------ */

static bool can_read_again(const struct replay_order *order)
{
    struct stat status;

    for (unsigned i = 0; i < order->log_count; i++)
        if (strcmp(order->logs[i], "-") == 0 || stat(order->logs[i], &status) != 0 ||
            !S_ISREG(status.st_mode))
            return false;
    return true;
}

static void summary_free(struct replay_summary *summary)
{
    for (unsigned i = 0; i < summary->result_count; i++) {
        struct replay_result *result = &summary->results[i];
        replay_stats_free(&result->stats);
        free(result->suggestions);
        policy_drop(result->policy);
    }
}

static bool search_pass(const struct replay_order *order, struct replay_search *search,
                        unsigned number)
{
    struct replay_summary found = {.result_count = order->policies[1] ? 2 : 1};
    bool good = run_pass(order, search, number, REPLAY_SEARCH_PASSES, &found);

    for (unsigned i = 0; i < found.result_count && good; i++)
        replay_search_learn(&search[i], &found.results[i].stats);
    summary_free(&found);
    return good;
}

static bool suggest(const struct replay_order *order, struct replay_summary *summary)
{
    struct replay_search search[2] = {{0}};
    unsigned count = summary->result_count, number = 0;
    bool good = true;

    for (unsigned i = 0; i < count; i++)
        replay_search_init(&search[i], summary->results[i].policy, &summary->results[i].stats);
    while (
        good && number < REPLAY_SEARCH_PASSES &&
        (replay_search_continues(&search[0]) || (count > 1 && replay_search_continues(&search[1]))))
        good = search_pass(order, search, ++number);
    for (unsigned i = 0; i < count; i++) {
        summary->results[i].suggestions = replay_search_result(&search[i]);
        replay_search_free(&search[i]);
    }
    return good;
}

static bool wants_suggestions(const struct replay_order *order, struct replay_summary *summary)
{
    struct replay_result *first = &summary->results[0];

    if (order->suggest == REPLAY_SUGGEST_NEVER || summary->logs.requests == 0)
        return false;
    if (!can_read_again(order)) {
        first->notes[first->note_count++] =
            "no suggestions: a log that is no file cannot be read again";
        return false;
    }
    if (order->suggest == REPLAY_SUGGEST_AUTO && summary->took_us > suggest_max_us) {
        first->notes[first->note_count++] =
            "no suggestions: they take several passes over the logs; --suggest searches them";
        return false;
    }
    return true;
}

/* No line could be read: the format is none of those of log_line.h. */
static bool format_is_unknown(const struct replay_summary *summary)
{
    if (summary->logs.requests || !summary->logs.odd)
        return false;
    fprintf(stderr,
            "%s:%llu: this is no log that weir replay reads: common, combined and vhost_combined "
            "lines, and JSON of weir or with the names of nginx's variables; see weir(8)\n",
            summary->logs.odd_file, (unsigned long long)summary->logs.odd_line);
    return true;
}

int replay_run(const struct replay_order *order)
{
    struct replay_summary summary = {.result_count = order->policies[1] ? 2 : 1};
    bool good;

    log_set_level(LEVEL_WARN);
    good = run_pass(order, NULL, 0, 0, &summary);

    if (good && wants_suggestions(order, &summary))
        good = suggest(order, &summary);
    if (good)
        (order->json ? replay_report_json : replay_report_text)(&summary);
    good = good && !format_is_unknown(&summary);
    summary_free(&summary);
    return good ? 0 : 1;
}
