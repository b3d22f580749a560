/* metrics_servers.c - what is counted by upstream and server. */
#include "admin/metrics.h"
#include "admin/metrics_text.h"
#include "admin/problems.h"
#include "base/text.h"

enum { LABELS_MAX = 1024 };

/* Writes upstream="U",server="S" and, if `key` is set, ,KEY="VALUE". `name` is "U S". False: too
 * long. */
static bool write_labels(char bytes[static LABELS_MAX], const char *name, const char *key,
                         const char *value)
{
    struct text text = text_over(bytes, LABELS_MAX);
    const char *blank = strchr(name, ' ');

    text_literal(&text, "upstream=\"");
    text_put(&text, (struct slice){name, (size_t)(blank - name)});
    text_literal(&text, "\",server=\"");
    label_value(&text, blank + 1);
    text_char(&text, '"');
    if (key)
        text_printf(&text, ",%s=\"%s\"", key, value);
    text_char(&text, 0);
    return !text.failed;
}

static void sample(const struct metric_output *s, const char *family, unsigned row, unsigned column,
                   const char *key, const char *value)
{
    char labels[LABELS_MAX];

    if (write_labels(labels, s->view->names[NAMES_SERVERS].name[row], key, value))
        evbuffer_add_printf(
            s->out, "%s{%s} %llu\n", family, labels,
            (unsigned long long)metric_row_sum(s->view, TABLE_SERVERS, row, column));
}

/* A family with a sample per server. */
static void family(const struct metric_output *s, const char *name, const char *type,
                   const char *help, unsigned column)
{
    metric_head(s->out, name, type, help);
    for (unsigned row = 0; row < s->view->names[NAMES_SERVERS].count; row++)
        sample(s, name, row, column, NULL, NULL);
}

static void responses(const struct metric_output *s)
{
    static const char name[] = "weir_upstream_responses_total";
    static const char *const classes[SERVER_CLASSES] = {"1xx", "2xx", "3xx", "4xx", "5xx"};

    metric_head(s->out, name, "counter",
                "Responses of servers, also those that were retried, by status class.");
    for (unsigned row = 0; row < s->view->names[NAMES_SERVERS].count; row++) {
        for (unsigned i = 1; i < SERVER_CLASSES; i++)
            sample(s, name, row, SERVER_RESPONSES + i, "class", classes[i]);
    }
}

static void errors(const struct metric_output *s)
{
    static const char name[] = "weir_upstream_errors_total";

    metric_head(s->out, name, "counter",
                "Requests that a server did not answer, also those that were retried, by cause.");
    for (unsigned row = 0; row < s->view->names[NAMES_SERVERS].count; row++) {
        for (unsigned i = 0; i < SERVER_ERROR_COUNT; i++)
            sample(s, name, row, SERVER_ERROR_FIRST + i, "cause", server_error_name(i));
    }
}

static void durations(const struct metric_output *s)
{
    static const char name[] = "weir_upstream_duration_seconds";
    char labels[LABELS_MAX];

    metric_head(s->out, name, "histogram",
                "Time from sending a request to a server to the first byte of its response, and to "
                "the last one.");
    for (unsigned row = 0; row < s->view->names[NAMES_SERVERS].count; row++) {
        if (write_labels(labels, s->view->names[NAMES_SERVERS].name[row], "part", "first"))
            metric_row_histogram(s->out, name, labels, s->view, TABLE_SERVER_FIRST, row);
        if (write_labels(labels, s->view->names[NAMES_SERVERS].name[row], "part", "last"))
            metric_row_histogram(s->out, name, labels, s->view, TABLE_SERVER_LAST, row);
    }
}

static void problems(const struct metric_output *s)
{
    static const char name[] = "weir_upstream_problem";
    static const enum problem kinds[] = {PROBLEM_SERVER_ERRORS, PROBLEM_SERVER_SLOW};
    char labels[LABELS_MAX];

    metric_head(
        s->out, name, "gauge",
        "1 while a server fails more than 5 % of its requests (server_errors), or takes more than "
        "1 s, and three times its usual time, to begin half of its responses (server_slow).");
    for (unsigned row = 0; row < s->view->names[NAMES_SERVERS].count; row++)
        for (unsigned i = 0; i < COUNT_OF(kinds); i++)
            if (write_labels(labels, s->view->names[NAMES_SERVERS].name[row], "problem",
                             problem_name(kinds[i])))
                evbuffer_add_printf(s->out, "%s{%s} %d\n", name, labels,
                                    problem_of_server(s->view, kinds[i], row));
}

void metrics_write_servers(struct evbuffer *out, const struct admin_view *view)
{
    struct metric_output s = {out, view};

    responses(&s);
    errors(&s);
    durations(&s);
    problems(&s);
    family(&s, "weir_upstream_in_flight", "gauge", "Requests in progress by server.",
           SERVER_IN_FLIGHT);
    family(&s, "weir_upstream_server_retries_total", "counter",
           "Requests that were sent again after a try with this server.", SERVER_RETRIES);
    family(&s, "weir_upstream_server_ejections_total", "counter",
           "Times that a worker stopped sending requests to this server.", SERVER_EJECTIONS);
}
