/* replay_json.c - the report as JSON. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/text.h"
#include "replay/replay_report.h"

enum { TOP_CLIENTS = 100 };

/* Writes `text` as a JSON string. */
static void put_string(FILE *out, const char *text)
{
    size_t room = 6 * strlen(text) + 1;
    char *bytes = xmalloc(room);
    struct text escaped = text_over(bytes, room);

    text_json(&escaped, slice_of(text));
    fprintf(out, "\"%.*s\"", SLICE_ARG(text_slice(&escaped)));
    free(bytes);
}

static void put_time(FILE *out, const char *name, int64_t time_us)
{
    fprintf(out, "\"%s\":%" PRId64 ".%06" PRId64, name, time_us / 1000000, time_us % 1000000);
}

static void put_example(FILE *out, const char *name, const struct replay_example *example)
{
    fprintf(out, ",\"%s\":{", name);
    put_time(out, "time", example->time_us);
    fputs(",\"client\":", out);
    put_string(out, example->client);
    fputs(",\"request\":", out);
    put_string(out, example->request);
    fputs(",\"file\":", out);
    put_string(out, example->file);
    fprintf(out, ",\"line\":%" PRIu64 "}", example->line);
}

static void put_clients(FILE *out, const struct client_table *clients)
{
    const struct client_count *top[TOP_CLIENTS];
    unsigned count = client_table_top(clients, top, TOP_CLIENTS);

    fprintf(out, ",\"clients\":%zu,\"clients_complete\":%s,\"top_clients\":[", clients->used,
            clients->beyond ? "false" : "true");
    for (unsigned i = 0; i < count; i++) {
        fputs(i ? ",{\"client\":" : "{\"client\":", out);
        put_string(out, top[i]->name);
        fprintf(out, ",\"rejected\":%" PRIu64 "}", top[i]->count);
    }
    putc(']', out);
}

static void put_suggestion(FILE *out, const struct limit_suggestion *suggestion)
{
    fprintf(out,
            ",\"suggestion\":{\"value\":%" PRId64
            ",\"rejected_percent\":%.4f,\"clients\":%zu,\"limited_clients\":%zu,\"most_limited\":[",
            suggestion->limit, suggestion->share, suggestion->clients, suggestion->limited);
    for (unsigned i = 0; i < suggestion->named; i++) {
        fputs(i ? "," : "", out);
        put_string(out, suggestion->names[i]);
    }
    fputs("]}", out);
}

static void put_limit(FILE *out, const struct replay_result *result, unsigned index)
{
    const struct limit *limit = &result->policy->limits[index];
    const struct limit_stats *stats = &result->stats.limits[index];

    fputs("{\"limit\":", out);
    put_string(out, limit->name);
    fprintf(out,
            ",\"value\":%" PRId64 ",\"shadow\":%s,\"applied\":%" PRIu64 ",\"rejected\":%" PRIu64
            ",\"delayed\":%" PRIu64,
            limit->limit, limit->shadow || limit->enforce == 0 ? "true" : "false", stats->applied,
            stats->rejected, stats->delayed);
    if (stats->rejected) {
        put_example(out, "first_rejection", &stats->first);
        fprintf(out, ",\"worst_minute\":{\"time\":%" PRId64 ",\"rejected\":%" PRIu64 "}",
                stats->worst_minute * 60, stats->worst_count);
    }
    put_clients(out, &stats->clients);
    if (result->suggestions && result->suggestions[index].limit)
        put_suggestion(out, &result->suggestions[index]);
    putc('}', out);
}

static void put_result(FILE *out, const struct replay_result *result)
{
    const struct replay_stats *stats = &result->stats;

    fputs("{\"policy\":", out);
    put_string(out, result->policy->file);
    fprintf(out,
            ",\"requests\":%" PRIu64 ",\"admitted\":%" PRIu64 ",\"rejected\":%" PRIu64
            ",\"unlimited\":%" PRIu64 ",\"blocked\":%" PRIu64 ",\"invalid\":%" PRIu64,
            stats->requests, stats->admitted, stats->rejected, stats->unlimited, stats->blocked,
            stats->refused);
    put_clients(out, &stats->rejected_clients);
    if (stats->refused) {
        put_example(out, "first_invalid", &stats->first_refused);
        fputs(",\"invalid_reason\":", out);
        put_string(out, stats->refused_why);
    }
    fputs(",\"limits\":[", out);
    for (unsigned i = 0; i < stats->limit_count; i++) {
        if (i)
            putc(',', out);
        put_limit(out, result, i);
    }
    fputs("],\"notes\":[", out);
    for (unsigned i = 0; i < result->note_count; i++) {
        if (i)
            putc(',', out);
        put_string(out, result->notes[i]);
    }
    fputs("]}", out);
}

void replay_report_json(const struct replay_summary *s, FILE *out)
{
    fprintf(out,
            "{\"lines\":%" PRIu64 ",\"requests\":%" PRIu64 ",\"other_lines\":%" PRIu64
            ",\"odd_lines\":%" PRIu64 ",\"out_of_order\":%" PRIu64 ",\"seconds\":%.3f",
            s->logs.lines, s->logs.requests, s->logs.other, s->logs.odd, s->logs.out_of_order,
            (double)s->took_us / 1e6);
    if (s->logs.requests) {
        putc(',', out);
        put_time(out, "first_time", s->first_us);
        putc(',', out);
        put_time(out, "last_time", s->last_us);
    }
    if (s->logs.odd) {
        fputs(",\"first_odd\":{\"file\":", out);
        put_string(out, s->odd_file);
        fprintf(out, ",\"line\":%" PRIu64 "}", s->odd_line);
    }
    fputs(",\"policies\":[", out);
    for (unsigned i = 0; i < s->result_count; i++) {
        if (i)
            putc(',', out);
        put_result(out, &s->results[i]);
    }
    putc(']', out);
    if (s->result_count > 1)
        fprintf(out,
                ",\"comparison\":{\"rejected_by_both\":%" PRIu64 ",\"only_first\":%" PRIu64
                ",\"only_second\":%" PRIu64 "}",
                s->both, s->only_first, s->only_second);
    fputs("}\n", out);
}
