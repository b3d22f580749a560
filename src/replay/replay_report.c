/* replay_report.c - the text report. */
#include "replay/replay_report.h"

#include <inttypes.h>
#include <stdlib.h>
#include <time.h>

#include "base/macros.h"
#include "base/text.h"

enum { TOP_CLIENTS = 10, TIME_SIZE = 32 };

/* --- Values ----------------------------------------------------------------------------------- */

/* "1,234,567" */
static const char *grouped(uint64_t value, char text[static 32])
{
    char digits[24];
    int count = snprintf(digits, sizeof digits, "%" PRIu64, value), out = 0;

    for (int i = 0; i < count; i++) {
        if (i && (count - i) % 3 == 0)
            text[out++] = ',';
        text[out++] = digits[i];
    }
    text[out] = 0;
    return text;
}

static double percent(uint64_t part, uint64_t whole)
{
    return whole ? 100.0 * (double)part / (double)whole : 0;
}

static const char *time_text(int64_t time_us, const char *format, char text[static TIME_SIZE])
{
    time_t seconds = (time_t)(time_us / 1000000);
    struct tm tm;

    gmtime_r(&seconds, &tm);
    strftime(text, TIME_SIZE, format, &tm);
    return text;
}

/* Prints text from a log. Control characters could command the terminal, so they become "?". */
static void put_clean(const char *text)
{
    for (struct slice s = slice_of(text); s.n;) {
        size_t n = text_printable(s), taken = n ? n : 1;
        fwrite(n ? s.p : "?", 1, taken, stdout);
        s = (struct slice){s.p + taken, s.n - taken};
    }
}

static void put_example(const struct replay_example *example)
{
    char time[TIME_SIZE];

    printf("%s  ", time_text(example->time_us, "%Y-%m-%d %H:%M:%S", time));
    put_clean(example->client);
    fputs("  ", stdout);
    put_clean(example->request);
    printf("  (%s:%" PRIu64 ")", example->file, example->line);
}

/* --- Totals ----------------------------------------------------------------------------------- */

static void put_head(const struct replay_summary *s)
{
    char number[32], first[TIME_SIZE], last[TIME_SIZE];
    double seconds = (double)s->took_us / 1e6;

    if (s->logs.requests == 0) {
        printf("No requests in %s lines.\n", grouped(s->logs.lines, number));
        return;
    }
    printf("%s requests, ", grouped(s->logs.requests, number));
    printf("%s to %s UTC; ", time_text(s->first_us, "%Y-%m-%d %H:%M:%S", first),
           time_text(s->last_us, "%Y-%m-%d %H:%M:%S", last));
    printf("replayed in %.1f s, %s lines/s\n", seconds,
           grouped(seconds > 0 ? (uint64_t)((double)s->logs.lines / seconds) : 0, number));
}

static void put_total(const char *name, uint64_t count, uint64_t whole)
{
    char number[32];
    printf("  %-12s %15s  %7.3f %%", name, grouped(count, number), percent(count, whole));
}

static void put_totals(const struct replay_stats *stats)
{
    char number[32];

    put_total("admitted", stats->admitted, stats->requests);
    if (stats->unlimited)
        printf("  (%s without a limit)", grouped(stats->unlimited, number));
    putchar('\n');
    put_total("rejected", stats->rejected, stats->requests);
    if (stats->rejected)
        printf("  %s%s clients", stats->rejected_clients.beyond ? "more than " : "",
               grouped(stats->rejected_clients.used, number));
    if (stats->blocked)
        printf("; %s requests of blocked clients", grouped(stats->blocked, number));
    putchar('\n');
    if (stats->refused) {
        put_total("invalid", stats->refused, stats->requests);
        printf("  refused without a decision; the first: %s\n%32s", stats->refused_why, "");
        put_example(&stats->first_refused);
        putchar('\n');
    }
}

/* --- Limits ----------------------------------------------------------------------------------- */

static const char *shadow_mark(const struct limit *limit)
{
    return limit->shadow || limit->enforce == 0 ? " (shadow)" : "";
}

static void put_clients(const struct limit_stats *limit)
{
    const struct client_count *top[TOP_CLIENTS];
    unsigned count = replay_clients_top(&limit->clients, top, TOP_CLIENTS);
    char number[32];

    printf("    clients    %s%s", limit->clients.beyond ? "more than " : "",
           grouped(limit->clients.used, number));
    fputs(count < limit->clients.used ? "; most rejected:\n" : ":\n", stdout);
    for (unsigned i = 0; i < count; i++) {
        printf("    %14s  ", grouped(top[i]->count, number));
        put_clean(top[i]->name);
        putchar('\n');
    }
}

static void put_rejections(const struct limit_stats *limit)
{
    char number[32], time[TIME_SIZE];

    fputs("    first      ", stdout);
    put_example(&limit->first);
    printf("\n    worst      %s UTC: %s rejected in this minute\n",
           time_text(limit->worst_minute * 60000000, "%Y-%m-%d %H:%M", time),
           grouped(limit->worst_count, number));
    put_clients(limit);
}

static void put_suggestion(const struct limit *limit, const struct limit_suggestion *suggestion)
{
    char period_bytes[64];
    struct text period = text_over(period_bytes, sizeof period_bytes);

    limit_period_write(&period, limit);
    printf("    suggestion limit: %" PRId64 " (now %" PRId64 ")", suggestion->limit, limit->limit);
    if (suggestion->burst)
        printf(" and burst: %" PRId64 " (now %" PRId64 ")", suggestion->burst, limit->burst);
    printf(" per %.*s would reject %.3f %%, and limit %zu of %zu clients",
           SLICE_ARG(text_slice(&period)), suggestion->share, suggestion->limited,
           suggestion->clients);
    for (unsigned i = 0; i < suggestion->named; i++) {
        fputs(i ? ", " : "\n               ", stdout);
        put_clean(suggestion->names[i]);
    }
    fputs(suggestion->limited > suggestion->named ? ", ...\n" : "\n", stdout);
}

static void print_limit_totals(const struct replay_result *result, unsigned index)
{
    const struct limit *limit = &result->policy->limits[index];
    const struct limit_stats *stats = &result->stats.limits[index];
    char number[32];

    printf("\n  limit %s%s\n", limit->name, shadow_mark(limit));
    if (stats->applied == 0) {
        fputs("    applied to no request\n", stdout);
        return;
    }
    printf("    applied    %s requests\n", grouped(stats->applied, number));
    printf("    rejected   %s (%.3f %%)\n", grouped(stats->rejected, number),
           percent(stats->rejected, stats->applied));
    if (stats->spared)
        printf("    shadow     %s (%.3f %%) over the limit, of clients outside of enforce\n",
               grouped(stats->spared, number), percent(stats->spared, stats->applied));
    if (stats->delayed)
        printf("    delayed    %s\n", grouped(stats->delayed, number));
    if (stats->rejected)
        put_rejections(stats);
    if (result->suggestions && result->suggestions[index].limit)
        put_suggestion(limit, &result->suggestions[index]);
}

static void print_policy(const struct replay_result *result, bool named)
{
    putchar('\n');
    if (named)
        printf("%s\n", result->policy->file);
    put_totals(&result->stats);
    for (unsigned i = 0; i < result->stats.limit_count; i++)
        print_limit_totals(result, i);
}

/* --- The whole -------------------------------------------------------------------------------- */

static void put_comparison(const struct replay_summary *s)
{
    char number[32];

    fputs("\nRejected\n", stdout);
    printf("  %15s  by both policies\n", grouped(s->both, number));
    printf("  %15s  by %s only\n", grouped(s->only_first, number), s->results[0].policy->file);
    printf("  %15s  by %s only\n", grouped(s->only_second, number), s->results[1].policy->file);
}

static void put_notes(const struct replay_summary *s)
{
    char number[32];

    fputs("\n", stdout);
    if (s->logs.odd)
        printf("Note: %s line%s could not be parsed; the first: %s:%" PRIu64 "\n",
               grouped(s->logs.odd, number), s->logs.odd == 1 ? "" : "s", s->logs.odd_file,
               s->logs.odd_line);
    if (s->logs.out_of_order)
        printf("Note: %s requests are far out of order; they were replayed later than logged\n",
               grouped(s->logs.out_of_order, number));
    if (s->logs.left_out)
        printf("Note: %s rejected requests are not in the logs (log.sample); more were limited\n",
               grouped(s->logs.left_out, number));
    for (unsigned r = 0; r < s->result_count; r++)
        for (unsigned i = 0; i < s->results[r].note_count; i++)
            printf("Note: %s%s%s\n", r ? s->results[r].policy->file : "", r ? ": " : "",
                   s->results[r].notes[i]);
}

void replay_report_text(const struct replay_summary *s)
{
    put_head(s);
    for (unsigned i = 0; i < s->result_count && s->logs.requests; i++)
        print_policy(&s->results[i], s->result_count > 1);
    if (s->result_count > 1 && s->logs.requests)
        put_comparison(s);
    put_notes(s);
}
