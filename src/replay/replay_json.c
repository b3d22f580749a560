/* replay_json.c - the report as JSON. */
#include "base/json_writer.h"
#include "replay/replay_report.h"

enum { TOP_CLIENTS = 100 };

static void put_example(struct json_writer *json, const char *name,
                        const struct replay_example *example)
{
    json_begin(json, name, '{');
    json_put_seconds(json, "time", example->time_us);
    json_put_text(json, "client", example->client);
    json_put_text(json, "request", example->request);
    json_put_text(json, "file", example->file);
    json_put_u64(json, "line", example->line);
    json_end(json, '}');
}

static void put_clients(struct json_writer *json, const struct replay_clients *clients)
{
    const struct client_count *top[TOP_CLIENTS];
    unsigned count = replay_clients_top(clients, top, TOP_CLIENTS);

    json_put_u64(json, "clients", clients->used);
    json_put_bool(json, "clients_complete", !clients->beyond);
    json_begin(json, "top_clients", '[');
    for (unsigned i = 0; i < count; i++) {
        json_begin(json, NULL, '{');
        json_put_text(json, "client", top[i]->name);
        json_put_u64(json, "rejected", top[i]->count);
        json_end(json, '}');
    }
    json_end(json, ']');
}

static void put_suggestion(struct json_writer *json, const struct limit_suggestion *suggestion)
{
    json_begin(json, "suggestion", '{');
    json_put_i64(json, "value", suggestion->limit);
    if (suggestion->burst)
        json_put_i64(json, "burst", suggestion->burst);
    json_put_number(json, "rejected_percent",
                    (double)(int64_t)(suggestion->share * 1e4 + 0.5) / 1e4);
    json_put_u64(json, "clients", suggestion->clients);
    json_put_u64(json, "limited_clients", suggestion->limited);
    json_begin(json, "most_limited", '[');
    for (unsigned i = 0; i < suggestion->named; i++)
        json_put_text(json, NULL, suggestion->names[i]);
    json_end(json, ']');
    json_end(json, '}');
}

static void put_limit_totals(struct json_writer *json, const struct replay_result *result,
                             unsigned index)
{
    const struct limit *limit = &result->policy->limits[index];
    const struct limit_stats *stats = &result->stats.limits[index];

    json_begin(json, NULL, '{');
    json_put_text(json, "limit", limit->name);
    json_put_i64(json, "value", limit->limit);
    json_put_bool(json, "shadow", limit->shadow || limit->enforce == 0);
    json_put_u64(json, "applied", stats->applied);
    json_put_u64(json, "rejected", stats->rejected);
    json_put_u64(json, "not_enforced", stats->spared);
    json_put_u64(json, "delayed", stats->delayed);
    if (stats->rejected) {
        put_example(json, "first_rejection", &stats->first);
        json_begin(json, "worst_minute", '{');
        json_put_i64(json, "time", stats->worst_minute * 60);
        json_put_u64(json, "rejected", stats->worst_count);
        json_end(json, '}');
    }
    put_clients(json, &stats->clients);
    if (result->suggestions && result->suggestions[index].limit)
        put_suggestion(json, &result->suggestions[index]);
    json_end(json, '}');
}

static void put_policy(struct json_writer *json, const struct replay_result *result)
{
    const struct replay_stats *stats = &result->stats;

    json_begin(json, NULL, '{');
    json_put_text(json, "policy", result->policy->file);
    json_put_u64(json, "requests", stats->requests);
    json_put_u64(json, "admitted", stats->admitted);
    json_put_u64(json, "rejected", stats->rejected);
    json_put_u64(json, "unlimited", stats->unlimited);
    json_put_u64(json, "blocked", stats->blocked);
    json_put_u64(json, "invalid", stats->refused);
    put_clients(json, &stats->rejected_clients);
    if (stats->refused) {
        put_example(json, "first_invalid", &stats->first_refused);
        json_put_text(json, "invalid_reason", stats->refused_why);
    }
    json_begin(json, "limits", '[');
    for (unsigned i = 0; i < stats->limit_count; i++)
        put_limit_totals(json, result, i);
    json_end(json, ']');
    json_begin(json, "notes", '[');
    for (unsigned i = 0; i < result->note_count; i++)
        json_put_text(json, NULL, result->notes[i]);
    json_end(json, ']');
    json_end(json, '}');
}

static void put_summary(struct json_writer *json, const struct replay_summary *s)
{
    json_begin(json, NULL, '{');
    json_put_u64(json, "lines", s->logs.lines);
    json_put_u64(json, "requests", s->logs.requests);
    json_put_u64(json, "other_lines", s->logs.other);
    json_put_u64(json, "odd_lines", s->logs.odd);
    json_put_u64(json, "out_of_order", s->logs.out_of_order);
    json_put_u64(json, "left_out", s->logs.left_out);
    json_put_seconds(json, "seconds", (int64_t)(s->took_us + 500) / 1000 * 1000);
    if (s->logs.requests) {
        json_put_seconds(json, "first_time", s->first_us);
        json_put_seconds(json, "last_time", s->last_us);
    }
    if (s->logs.odd) {
        json_begin(json, "first_odd", '{');
        json_put_text(json, "file", s->logs.odd_file);
        json_put_u64(json, "line", s->logs.odd_line);
        json_end(json, '}');
    }
    json_begin(json, "policies", '[');
    for (unsigned i = 0; i < s->result_count; i++)
        put_policy(json, &s->results[i]);
    json_end(json, ']');
    if (s->result_count > 1) {
        json_begin(json, "comparison", '{');
        json_put_u64(json, "rejected_by_both", s->both);
        json_put_u64(json, "only_first", s->only_first);
        json_put_u64(json, "only_second", s->only_second);
        json_end(json, '}');
    }
    json_end(json, '}');
}

void replay_report_json(const struct replay_summary *s)
{
    struct text text;
    struct json_writer json = json_writer_growing(&text);

    put_summary(&json, s);
    json_print(&text);
}
