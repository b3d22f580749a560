#include "admin/snapshot_parts.h"

static void server_latency(struct snapshot *s, const char *key, enum worker_table table,
                           unsigned row)
{
    uint64_t counts[ROW_HISTOGRAM_BUCKETS + 1];

    for (unsigned i = 0; i <= ROW_HISTOGRAM_BUCKETS; i++) {
        int64_t more = snapshot_increase(s->history, metric_row_sum(s->view, table, row, i));
        counts[i] = more > 0 && s->interval_s > 0 ? (uint64_t)more : 0;
    }
    snapshot_percentiles(s, key, counts, row_histogram_bounds_us, ROW_HISTOGRAM_BUCKETS);
}

static void server(struct snapshot *s, const struct upstream *upstream,
                   const struct upstream_server *server)
{
    uint64_t errors = 0;

    for (unsigned i = 0; i < SERVER_ERROR_COUNT; i++)
        errors += metric_row_sum(s->view, TABLE_SERVERS, server->row, SERVER_ERROR_FIRST + i);
    json_begin(&s->json, NULL, '{');
    json_put_text(&s->json, "upstream", upstream->name);
    json_put_text(&s->json, "server", server->text);
    json_begin(&s->json, "responses", '{');
    for (unsigned i = 0; i < SERVER_CLASSES; i++)
        snapshot_counter(s, response_class_name[i + 1],
                         metric_row_sum(s->view, TABLE_SERVERS, server->row, SERVER_RESPONSES + i));
    json_end(&s->json, '}');
    snapshot_counter(s, "errors", errors);
    snapshot_counter(s, "retries",
                     metric_row_sum(s->view, TABLE_SERVERS, server->row, SERVER_RETRIES));
    snapshot_counter(s, "ejections",
                     metric_row_sum(s->view, TABLE_SERVERS, server->row, SERVER_EJECTIONS));
    json_put_u64(&s->json, "in_flight",
                 metric_row_sum(s->view, TABLE_SERVERS, server->row, SERVER_IN_FLIGHT));
    json_begin(&s->json, "latency", '{');
    server_latency(s, "first", TABLE_SERVER_FIRST, server->row);
    server_latency(s, "last", TABLE_SERVER_LAST, server->row);
    json_end(&s->json, '}');
    json_end(&s->json, '}');
}

void snapshot_servers(struct snapshot *s)
{
    const struct policy *policy = s->view->policy;
    unsigned left = SNAPSHOT_SERVERS_MAX;

    json_begin(&s->json, "servers", '[');
    for (unsigned u = 0; u < policy->upstream_count; u++) {
        for (unsigned i = 0; i < policy->upstreams[u].server_count && left; i++, left--)
            server(s, &policy->upstreams[u], &policy->upstreams[u].servers[i]);
    }
    json_end(&s->json, ']');
}
