/* top_screen.c - a snapshot as lines of text. */
#include <stdlib.h>

#include "cli/screen.h"
#include "cli/top.h"

/* --- Decisions -------------------------------------------------------------------------------- */

static bool means_rejection(struct slice verdict)
{
    return slice_equal(verdict, SLICE("limited")) || slice_equal(verdict, SLICE("prohibited")) ||
           slice_equal(verdict, SLICE("failed_closed"));
}

/* Sums `name` (per_second or total) over the verdicts; -1: no value. */
static double sum_of(const json_t *decisions, const char *name, bool rejections, bool admissions)
{
    double sum = -1;
    const char *key;
    json_t *verdict;

    json_object_foreach((json_t *)decisions, key, verdict)
    {
        double value = json_double(json_object_get(verdict, name), -1);
        bool counted = means_rejection(slice_of(key))
                           ? rejections
                           : admissions && strcmp(key, "not_charged") != 0;
        if (counted && value >= 0)
            sum = (sum < 0 ? 0 : sum) + value;
    }
    return sum;
}

/* --- The parts of the screen ------------------------------------------------------------------ */

static void write_process(struct screen *s, const json_t *snapshot)
{
    char text[NUMBER_MAX];

    style(s, BOLD);
    put_text(s, "weir ");
    put_slice(s, json_text(json_object_get(snapshot, "version")));
    style(s, "0");
    put_text(s, "  up %s  ", span_text(number_at(snapshot, "uptime_seconds"), text));
    put_slice(s, json_text(json_object_get(snapshot, "policy_file")));
    if (slice_equal(json_text(json_object_get(snapshot, "state")), SLICE("stopping")))
        styled(s, RED, "  stopping");
    end_line(s);
}

/* The same sentences as /readyz. */
static void show_problems(struct screen *s, const json_t *snapshot)
{
    json_t *problems = json_object_get(snapshot, "problems"), *problem;
    size_t i;

    json_array_foreach(problems, i, problem)
    {
        put_text(s, "Problem    ");
        style(s, RED);
        put_slice(s, json_text(json_object_get(problem, "text")));
        style(s, "0");
        end_line(s);
    }
}

static double rate_at(const json_t *node, const char *path)
{
    char whole[64];

    snprintf(whole, sizeof whole, "%s.per_second", path);
    return number_at(node, whole);
}

static void put_errors(struct screen *s, double per_second)
{
    char text[NUMBER_MAX];

    if (per_second <= 0)
        return;
    put_text(s, "; ");
    style(s, RED);
    put_text(s, "%s errors/s", rate_text(per_second, text));
    style(s, "0");
}

static void write_requests(struct screen *s, const json_t *snapshot)
{
    const json_t *decisions = json_object_get(snapshot, "decisions");
    double all = sum_of(decisions, "per_second", true, true),
           rejected = sum_of(decisions, "per_second", true, false),
           failed = number_at(snapshot, "requests.failed.per_second");
    char text[NUMBER_MAX], more[NUMBER_MAX];

    put_text(s, "Requests   %8s/s", rate_text(all, text));
    go_to(s, 24);
    put_text(s, "%s in progress, %s connections",
             rate_text(number_at(snapshot, "requests.active"), text),
             rate_text(number_at(snapshot, "requests.connections"), more));
    end_line(s);
    put_text(s, "Rejected   ");
    style(s, rejected > 0 ? AMBER : "0");
    put_text(s, "%8s/s", rate_text(rejected, text));
    style(s, "0");
    go_to(s, 24);
    if (all > 0)
        put_text(s, "%.1f %% of requests", 100 * rejected / all);
    put_errors(s, failed);
    end_line(s);
}

/* Calls of the rate limit service, which Requests and Rejected do not count. */
static void write_calls(struct screen *s, const json_t *service)
{
    double all = rate_at(service, "calls"), over = rate_at(service, "over_limit"),
           errors = rate_at(service, "errors");
    char text[NUMBER_MAX], more[NUMBER_MAX];

    if (!json_is_object(service))
        return;
    put_text(s, "Calls      %8s/s", rate_text(all, text));
    go_to(s, 24);
    if (all > 0)
        put_text(s, "%.1f %% over limit", 100 * over / all);
    go_to(s, 44);
    put_text(s, "decided p50 %s, p99 %s",
             duration_text(number_at(service, "latency.p50_seconds"), text),
             duration_text(number_at(service, "latency.p99_seconds"), more));
    put_errors(s, errors);
    end_line(s);
}

/* Responses to clients, by class: those of servers and weir's own. */
static void write_responses(struct screen *s, const json_t *snapshot)
{
    static const char *const classes[] = {"2xx", "3xx", "4xx", "5xx"};
    const json_t *responses = json_at(snapshot, "requests.responses");
    double switched = rate_at(responses, "1xx");
    char text[NUMBER_MAX];

    put_text(s, "Responses  ");
    for (size_t i = 0; i < COUNT_OF(classes); i++) {
        double rate = rate_at(responses, classes[i]);
        style(s, i == 3 && rate > 0 ? RED : "0");
        put_text(s, "%s%s %s/s", i ? ", " : "", classes[i], rate_text(rate, text));
        style(s, "0");
    }
    if (switched > 0)
        put_text(s, ", 1xx %s/s", rate_text(switched, text));
    end_line(s);
}

static void write_latency(struct screen *s, const json_t *snapshot)
{
    const json_t *latency = json_object_get(snapshot, "latency");
    char p50[NUMBER_MAX], p99[NUMBER_MAX];

    put_text(s, "Latency    p50 %s, p99 %s",
             duration_text(number_at(latency, "requests.p50_seconds"), p50),
             duration_text(number_at(latency, "requests.p99_seconds"), p99));
    go_to(s, 44);
    put_text(s, "servers p50 %s, p99 %s",
             duration_text(number_at(latency, "upstream_total.p50_seconds"), p50),
             duration_text(number_at(latency, "upstream_total.p99_seconds"), p99));
    end_line(s);
}

static void write_redis(struct screen *s, const json_t *snapshot)
{
    const json_t *redis = json_object_get(snapshot, "redis");
    double ready = number_at(redis, "ready_workers"),
           workers = (double)json_array_size(json_object_get(snapshot, "workers")),
           failures = number_at(redis, "failures.per_second");
    char p50[NUMBER_MAX], p99[NUMBER_MAX], calls[NUMBER_MAX];

    put_text(s, "Redis      ");
    if (!json_is_object(redis)) {
        put_text(s, "not needed");
        end_line(s);
        return;
    }
    bool good = ready == workers && failures <= 0;
    styled(s,
           good        ? GREEN
           : ready > 0 ? AMBER
                       : RED,
           good               ? "up"
           : ready == workers ? "errors"
           : ready > 0        ? "degraded"
                              : "down");
    put_text(s, "  p50 %s, p99 %s",
             duration_text(number_at(snapshot, "latency.redis.p50_seconds"), p50),
             duration_text(number_at(snapshot, "latency.redis.p99_seconds"), p99));
    go_to(s, 44);
    put_text(s, "%s calls/s, %.0f of %.0f workers connected, ",
             rate_text(number_at(redis, "calls.per_second"), calls), ready, workers);
    put_slice(s, json_text(json_object_get(redis, "address")));
    end_line(s);
    if (failures <= 0)
        return;
    go_to(s, 11);
    style(s, RED);
    put_text(s, "%s decisions/s without Redis, by on_failure", rate_text(failures, calls));
    style(s, "0");
    end_line(s);
}

/* Names a server that is not up. */
static void write_down(struct screen *s, const json_t *upstream, const json_t *server)
{
    const json_t *name = json_object_get(server, "name");

    style(s, RED);
    put_text(s, "; ");
    put_slice(s, json_text(name ? name : json_object_get(server, "address")));
    put_text(s, " (");
    put_slice(s, json_text(json_object_get(upstream, "name")));
    put_text(s, ") ");
    put_slice(s, json_text(json_object_get(server, "state")));
    style(s, "0");
}

/* Counts the servers, and names those that are not up. */
static void write_servers(struct screen *s, const json_t *snapshot)
{
    json_t *upstreams = json_object_get(snapshot, "upstreams"), *u, *server;
    unsigned up = 0, count = 0;
    size_t i, k;

    for (int pass = 0; pass < 2; pass++) {
        if (pass)
            put_text(s, "Servers    %u of %u up", up, count);
        json_array_foreach(upstreams, i, u)
        {
            json_array_foreach(json_object_get(u, "servers"), k, server)
            {
                bool good = slice_equal(json_text(json_object_get(server, "state")), SLICE("up"));
                up += !pass && good;
                count += !pass;
                if (pass && !good)
                    write_down(s, u, server);
            }
        }
    }
    end_line(s);
}

/* The width of names before numbers of so many columns, so that all fit if possible. */
static unsigned name_width(const struct screen *s, unsigned numbers)
{
    enum { LEAST = 12, MOST = 40 };
    unsigned room = s->all_columns > numbers + 1 ? s->all_columns - numbers - 1 : 0;

    return room < LEAST ? LEAST : room > MOST ? MOST : room;
}

/* A server: its requests, failures and times to the first and to the last byte of responses. */
static void write_server(struct screen *s, const json_t *server, unsigned width)
{
    double failed = rate_at(server, "responses.5xx"), errors = rate_at(server, "errors"),
           all = errors;
    char name[256], text[NUMBER_MAX];
    const char *class;
    json_t *counter;

    json_object_foreach(json_object_get(server, "responses"), class, counter) all +=
        number_at(counter, "per_second");
    snprintf(name, sizeof name, "%.*s %.*s",
             SLICE_ARG(json_text(json_object_get(server, "server"))),
             SLICE_ARG(json_text(json_object_get(server, "upstream"))));
    cell(s, slice_of(name), width);
    put_text(s, "%8s", rate_text(all < 0 ? -1 : all, text));
    style(s, failed > 0 ? RED : "0");
    put_text(s, "%8s", rate_text(failed, text));
    style(s, errors > 0 ? RED : "0");
    put_text(s, "%9s", rate_text(errors, text));
    style(s, "0");
    put_text(s, "%7.0f", number_at(server, "in_flight"));
    put_text(s, "%10s", duration_text(number_at(server, "latency.first.p50_seconds"), text));
    put_text(s, "%10s", duration_text(number_at(server, "latency.last.p50_seconds"), text));
    put_text(s, "%10s", duration_text(number_at(server, "latency.last.p99_seconds"), text));
    end_line(s);
}

static void write_server_table(struct screen *s, const json_t *servers)
{
    unsigned width = name_width(s, 62);

    style(s, BOLD);
    cell(s, SLICE("SERVERS"), width);
    put_text(s, "%8s%8s%9s%7s%10s%10s%10s", "REQ/S", "5XX/S", "ERRORS/S", "ACTIVE", "FIRST P50",
             "LAST P50", "LAST P99");
    style(s, "0");
    end_line(s);
    for (size_t i = 0; i < json_array_size(servers) && s->lines; i++)
        write_server(s, json_array_get(servers, i), width);
}

static void write_client(struct screen *s, const json_t *client, unsigned width)
{
    double least = number_at(client, "at_least"), most = number_at(client, "at_most");
    char count[NUMBER_MAX];

    cell(s, json_text(json_object_get(client, "client")), width);
    snprintf(count, sizeof count, "%.0f%s", least, most > least ? "+" : "");
    put_text(s, "%9s", count);
}

static void heading(struct screen *s, const char *name, const char *column, unsigned width)
{
    style(s, BOLD);
    cell(s, slice_of(name), width);
    put_text(s, "%9s", column);
    style(s, "0");
}

/* Two lists of clients side by side; below each other on a narrow screen. */
static void write_clients(struct screen *s, const json_t *snapshot, unsigned most)
{
    const json_t *top = json_object_get(snapshot, "top"),
                 *allowed = json_object_get(top, "allowed"),
                 *limited = json_object_get(top, "limited");
    unsigned width = (s->all_columns - 24) / 2;
    char title[64];

    width = width < 60 ? width : 60;
    snprintf(title, sizeof title, "BUSIEST%s (%.0f s)", width > 24 ? " CLIENTS" : "",
             number_at(top, "seconds"));
    heading(s, title, "ADMITTED", width);
    put_text(s, "   ");
    heading(s, width > 24 ? "MOST LIMITED CLIENTS" : "MOST LIMITED", "REJECTED", width);
    end_line(s);
    for (size_t i = 0; i < most && (i < json_array_size(allowed) || i < json_array_size(limited));
         i++) {
        if (i < json_array_size(allowed))
            write_client(s, json_array_get(allowed, i), width);
        if (i < json_array_size(limited)) {
            go_to(s, width + 13);
            write_client(s, json_array_get(limited, i), width);
        }
        end_line(s);
    }
}

/* Returns whether a limit has a cost of its own, and so counts units. */
static bool any_units(const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (json_object_get(json_array_get(list, i), "units"))
            return true;
    return false;
}

static void write_units(struct screen *s, const json_t *row)
{
    const json_t *units = json_object_get(row, "units");
    char text[NUMBER_MAX];

    if (units)
        put_text(s, " %9s", rate_text(json_double(json_object_get(units, "per_second"), 0), text));
}

/* WOULD/S: requests that a shadow limit would have rejected. UNITS/S: charges of limits with costs
 * of their own. */
static void write_table(struct screen *s, const json_t *list, const char *name, bool of_limits)
{
    char text[NUMBER_MAX];
    bool units = any_units(list);
    unsigned width = name_width(s, units ? 53 : 43);

    style(s, BOLD);
    cell(s, slice_of(name), width);
    put_text(s, "%10s %10s %9s %11s%s", "ADMITTED/S", "REJECTED/S", of_limits ? "WOULD/S" : "",
             "TOTAL", units ? "   UNITS/S" : "");
    style(s, "0");
    end_line(s);
    for (size_t i = 0; i < json_array_size(list) && s->lines; i++) {
        const json_t *row = json_array_get(list, i), *decisions = json_object_get(row, "decisions");
        double rejected = sum_of(decisions, "per_second", true, false),
               total = sum_of(decisions, "total", true, true);
        struct slice row_name = json_text(json_object_get(row, "name"));
        if (total <= 0 &&
            slice_equal(row_name, SLICE("(none)"))) /* requests that no rule matches */
            continue;
        cell(s, row_name, width);
        put_text(s, "%10s ", rate_text(sum_of(decisions, "per_second", false, true), text));
        style(s, rejected > 0 ? AMBER : "0");
        put_text(s, "%10s", rate_text(rejected, text));
        style(s, "0");
        put_text(s, " %9s %11.0f", of_limits ? rate_text(rate_at(decisions, "shadow"), text) : "",
                 total);
        write_units(s, row);
        end_line(s);
    }
}

void top_screen_write(FILE *out, const json_t *snapshot, const struct top_size *size)
{
    struct screen s = {.out = out,
                       .all_columns = size->columns > 40 ? size->columns : 40,
                       .lines = size->lines ? size->lines : UINT32_MAX,
                       .plain = size->plain};
    unsigned clients = !size->lines ? 20 : size->lines > 34 ? 12 : size->lines > 24 ? 8 : 4;

    write_process(&s, snapshot);
    show_problems(&s, snapshot);
    end_line(&s);
    write_requests(&s, snapshot);
    write_calls(&s, json_object_get(snapshot, "rate_limit_service"));
    write_responses(&s, snapshot);
    write_latency(&s, snapshot);
    write_redis(&s, snapshot);
    write_servers(&s, snapshot);
    end_line(&s);
    write_server_table(&s, json_object_get(snapshot, "servers"));
    end_line(&s);
    write_clients(&s, snapshot, clients);
    end_line(&s);
    write_table(&s, json_object_get(snapshot, "limits"), "LIMITS", true);
    end_line(&s);
    write_table(&s, json_object_get(snapshot, "rules"), "RULES", false);
    const json_t *priorities = json_object_get(snapshot, "priorities");
    if (json_array_size(priorities)) {
        end_line(&s);
        write_table(&s, priorities, "PRIORITIES", false);
    }
}
