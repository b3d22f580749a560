/* metrics_rows.c - counters by rule, limit, server and so on: sums over the workers' counter
 * tables, and their families. A family of one column, or of several with a label, is one row of
 * `families`. */
#include "admin/metrics.h"
#include "admin/metrics_text.h"
#include "admin/problems.h"

uint64_t metric_row_sum(const struct admin_view *view, enum worker_table table, unsigned row,
                        unsigned column)
{
    uint64_t sum = 0;

    for (unsigned w = 0; w < view->worker_count; w++)
        sum += counter_table_read(worker_table(view->workers[w], table), row, column);
    return sum;
}

bool metric_row_is_shown(const struct admin_view *view, enum worker_names names, unsigned row)
{
    if ((names != NAMES_LIMITS && names != NAMES_SERVERS) ||
        counter_names_uses(&view->names[names], row))
        return true;
    return names == NAMES_SERVERS && metric_row_sum(view, TABLE_SERVERS, row, SERVER_IN_FLIGHT);
}

struct metric_requests metric_requests(const struct admin_view *view)
{
    struct metric_requests requests = {0};

    for (unsigned row = 0; row < view->names[NAMES_RULES].count; row++)
        for (unsigned v = 0; v < VERDICT_NOT_CHARGED; v++) {
            uint64_t sum = metric_row_sum(view, TABLE_RULES, row, v);
            requests.all += sum;
            requests.rejected += verdict_rejects(v) ? sum : 0;
        }
    return requests;
}

struct metric_calls metric_calls(const struct admin_view *view)
{
    struct metric_calls calls = {0};

    for (unsigned d = 0; d < view->names[NAMES_DOMAINS].count; d++)
        for (unsigned code = 0; code < SERVICE_CODE_COUNT; code++) {
            uint64_t sum = metric_row_sum(view, TABLE_DOMAINS, d, code);
            calls.all += sum;
            calls.over_limit += code == SERVICE_OVER_LIMIT ? sum : 0;
            calls.errors += code > SERVICE_OVER_LIMIT ? sum : 0;
        }
    return calls;
}

double percentile_seconds(const uint64_t *counts, const uint64_t *bounds_us, unsigned buckets,
                          double share)
{
    uint64_t total = 0;
    double below = 0;

    for (unsigned i = 0; i <= buckets; i++)
        total += counts[i];
    if (!total)
        return -1;
    double rank = share * (double)total;
    for (unsigned i = 0; i < buckets; i++) {
        double count = (double)counts[i], low = i ? (double)bounds_us[i - 1] : 0;
        if (count > 0 && below + count >= rank)
            return (low + ((double)bounds_us[i] - low) * (rank - below) / count) / 1e6;
        below += count;
    }
    return (double)bounds_us[buckets - 1] / 1e6;
}

/* --- Labels ----------------------------------------------------------------------------------- */

/* The labels of a row, and one more if `label` is not NULL. Servers have two. */
struct row_labels {
    const char *list[7];
};

static struct row_labels labels_of(const struct admin_view *view, enum worker_names names,
                                   unsigned row, const char *label, const char *value)
{
    static const char *const name_labels[] = {[NAMES_RULES] = "rule",
                                              [NAMES_PRIORITIES] = "priority",
                                              [NAMES_LIMITS] = "limit",
                                              [NAMES_SERVERS] = "server",
                                              [NAMES_DOMAINS] = "domain"};
    const char *owner = view->names[names].owner[row], *name = view->names[names].name[row];

    if (owner)
        return (struct row_labels){{"upstream", owner, name_labels[names], name, label, value}};
    return (struct row_labels){{name_labels[names], name, label, value}};
}

/* --- Counters and gauges ---------------------------------------------------------------------- */

enum { ALL = ~0u >> 1 };

struct family {
    const char *name, *type, *help;
    enum worker_table table;
    unsigned first, count; /* columns */
    /* So many columns have a sample even if they are 0: the output of a large policy stays
     * readable. */
    unsigned always;
    const char *label; /* NULL: there is one column */
    const char *const *values;
};

static const char *const failure_causes[] = {"failed", "late"};
static const char *const classes[] = {"1xx", "2xx", "3xx", "4xx", "5xx"};

/* Of decisions, "allowed" and "limited" have a sample always. VERDICT_NOT_CHARGED applies to limits
 * only. */
static const struct family families[] = {
    {"weir_requests_total", "counter", "Requests by matching rule and verdict.", TABLE_RULES, 0,
     VERDICT_NOT_CHARGED, VERDICT_LIMITED + 1, "decision", verdict_label},
    {"weir_priority_requests_total", "counter", "Requests by priority and verdict.",
     TABLE_PRIORITIES, 0, VERDICT_NOT_CHARGED, VERDICT_LIMITED + 1, "decision", verdict_label},
    {"weir_limit_decisions_total", "counter",
     "Decisions by limit; a request with several limits counts once for each. Allowed: it was "
     "admitted; not_charged: another limit rejected it.",
     TABLE_LIMITS, 0, VERDICT_COUNT, VERDICT_LIMITED + 1, "decision", verdict_label},
    {"weir_limit_near_total", "counter",
     "Admitted requests that left less of a limit than its option near.", TABLE_LIMITS, NEAR_COLUMN,
     1, ALL, NULL, NULL},
    {"weir_limit_units_total", "counter",
     "Units that admitted requests have cost in a limit whose cost is a map, after adjustment by "
     "the response.",
     TABLE_LIMITS, UNITS_COLUMN, 1, ALL, NULL, NULL},
    {"weir_script_failures_total", "counter",
     "Requests of a limit with a script of its own that the script failed, or that had no answer "
     "in time.",
     TABLE_LIMITS, SCRIPT_FAILED_COLUMN, COUNT_OF(failure_causes), 0, "cause", failure_causes},
    {"weir_rate_limit_service_requests_total", "counter",
     "Calls of the rate limit service by domain and code: OK, OVER_LIMIT, or the gRPC status.",
     TABLE_DOMAINS, 0, SERVICE_CODE_COUNT, 0, "code", service_code_name},
    {"weir_upstream_responses_total", "counter",
     "Responses of servers, also those that were retried, by status class.", TABLE_SERVERS,
     SERVER_RESPONSES, COUNT_OF(classes), ALL, "class", classes},
    {"weir_upstream_errors_total", "counter",
     "Requests that a server did not answer, also those that were retried, by cause.",
     TABLE_SERVERS, SERVER_ERROR_FIRST, SERVER_ERROR_COUNT, ALL, "cause", server_error_label},
    {"weir_upstream_in_flight", "gauge", "Requests in progress by server.", TABLE_SERVERS,
     SERVER_IN_FLIGHT, 1, ALL, NULL, NULL},
    {"weir_upstream_server_retries_total", "counter",
     "Requests that were sent again after a try with this server.", TABLE_SERVERS, SERVER_RETRIES,
     1, ALL, NULL, NULL},
    {"weir_upstream_server_ejections_total", "counter",
     "Times that a worker stopped sending requests to this server.", TABLE_SERVERS,
     SERVER_EJECTIONS, 1, ALL, NULL, NULL}};

/* Calls of domains that the policy does not have share the first row. */
static bool is_shown(const struct metric_output *s, const struct family *f)
{
    return f->table == TABLE_PRIORITIES ? s->view->names[NAMES_PRIORITIES].count
           : f->table == TABLE_DOMAINS  ? s->view->policy->rate_limit_service.is_set
                                        : true;
}

/* Returns whether failures of the script of a limit have samples of 0: increase() of a series that
 * begins with 1 is 0. */
static bool has_own_script(const struct metric_output *s, const struct family *f, unsigned row)
{
    const struct policy *policy = s->view->policy;

    for (unsigned i = 0; f->values == failure_causes && i < policy->limit_count; i++)
        if (policy->limits[i].row == row && policy->limits[i].kind == LIMIT_CUSTOM)
            return true;
    return false;
}

static void write_family(const struct metric_output *s, const struct family *f)
{
    enum worker_names names = worker_table_names(f->table);

    metric_head(s->out, f->name, f->type, f->help);
    for (unsigned row = 0; row < s->view->names[names].count; row++)
        for (unsigned i = 0; i < f->count && metric_row_is_shown(s->view, names, row); i++) {
            uint64_t sum = metric_row_sum(s->view, f->table, row, f->first + i);
            const char *value = f->label ? f->values[i] : NULL;
            if (sum || i < f->always || has_own_script(s, f, row))
                metric_labelled(s->out, f->name, sum,
                                labels_of(s->view, names, row, f->label, value).list);
        }
}

/* --- Durations and problems ------------------------------------------------------------------- */

/* Appends the samples of a histogram in a row, unless it is empty. */
static void write_histogram(const struct metric_output *s, const char *family,
                            enum worker_table table, unsigned row, const char *const *labels)
{
    uint64_t counts[ROW_HISTOGRAM_BUCKETS + 1], total = 0, below = 0;
    char bytes[METRIC_LABELS_MAX];
    struct text text = text_over(bytes, sizeof bytes - 1);

    for (unsigned i = 0; i <= ROW_HISTOGRAM_BUCKETS; i++)
        total += counts[i] = metric_row_sum(s->view, table, row, i);
    if (total == 0 || !metric_write_labels(&text, labels))
        return;
    bytes[text.n] = 0;
    for (unsigned i = 0; i < ROW_HISTOGRAM_BUCKETS; i++)
        evbuffer_add_printf(s->out, "%s_bucket{%s,le=\"%g\"} %llu\n", family, bytes,
                            (double)row_histogram_bounds_us[i] / 1e6,
                            (unsigned long long)(below += counts[i]));
    evbuffer_add_printf(s->out,
                        "%s_bucket{%s,le=\"+Inf\"} %llu\n%s_sum{%s} %.6f\n%s_count{%s} %llu\n",
                        family, bytes, (unsigned long long)total, family, bytes,
                        (double)metric_row_sum(s->view, table, row, ROW_HISTOGRAM_SUM) / 1e6,
                        family, bytes, (unsigned long long)total);
}

static void durations(const struct metric_output *s)
{
    static const char rules[] = "weir_rule_duration_seconds";
    static const char servers[] = "weir_upstream_duration_seconds";

    metric_head(s->out, rules, "histogram",
                "Time from reading a request header to writing the end of the response, by rule.");
    for (unsigned row = 0; row < s->view->names[NAMES_RULES].count; row++)
        write_histogram(s, rules, TABLE_RULE_DURATIONS, row,
                        labels_of(s->view, NAMES_RULES, row, NULL, NULL).list);
    metric_head(s->out, servers, "histogram",
                "Time from sending a request to a server to the first byte of its response, and to "
                "the last one.");
    for (unsigned row = 0; row < s->view->names[NAMES_SERVERS].count; row++) {
        if (!metric_row_is_shown(s->view, NAMES_SERVERS, row))
            continue;
        write_histogram(s, servers, TABLE_SERVER_FIRST, row,
                        labels_of(s->view, NAMES_SERVERS, row, "part", "first").list);
        write_histogram(s, servers, TABLE_SERVER_LAST, row,
                        labels_of(s->view, NAMES_SERVERS, row, "part", "last").list);
    }
}

static void problems(const struct metric_output *s)
{
    static const char name[] = "weir_upstream_problem";
    static const enum problem kinds[] = {PROBLEM_SERVER_ERRORS, PROBLEM_SERVER_SLOW};

    metric_head(
        s->out, name, "gauge",
        "1 while a server fails more than 5 % of its requests (server_errors), or takes more than "
        "1 s, and three times its usual time, to begin half of its responses (server_slow).");
    for (unsigned row = 0; row < s->view->names[NAMES_SERVERS].count; row++)
        for (unsigned i = 0;
             i < COUNT_OF(kinds) && metric_row_is_shown(s->view, NAMES_SERVERS, row); i++)
            metric_labelled(
                s->out, name, problem_of_server(s->view, kinds[i], row),
                labels_of(s->view, NAMES_SERVERS, row, "problem", problem_name(kinds[i])).list);
}

void metrics_write_rows(struct evbuffer *out, const struct admin_view *view)
{
    const struct metric_output s = {out, view};

    for (size_t i = 0; i < COUNT_OF(families); i++)
        if (is_shown(&s, &families[i]))
            write_family(&s, &families[i]);
    durations(&s);
    problems(&s);
}
