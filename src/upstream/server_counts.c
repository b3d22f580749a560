/* server_counts.c - counts requests by server; see upstream_stats.h. */
#include "upstream/upstream_internal.h"

void server_find_counts(struct server *server)
{
    struct server_stats *stats = &server->pool->pools->worker->stats.servers;
    unsigned row = server->endpoint->settings->row;

    server->counts = counter_table_row(&stats->counts, row);
    server->first = counter_table_row(&stats->first, row);
    server->last = counter_table_row(&stats->last, row);
}

void server_stats_begin(struct link *link)
{
    link->in_flight = true;
    link->error_counted = false;
    counter_add(&link->server->counts[SERVER_IN_FLIGHT], 1);
}

void link_release(struct link *link, bool complete)
{
    if (link->in_flight)
        counter_subtract(&link->server->counts[SERVER_IN_FLIGHT], 1);
    link->in_flight = false;
    link->ops->release(link, complete);
}

void server_stats_response(const struct link *link, uint16_t status, uint64_t us)
{
    unsigned class = status / 100;

    if (class >= 1 && class <= SERVER_CLASSES)
        counter_add(&link->server->counts[SERVER_RESPONSES + class - 1], 1);
    row_histogram_add(link->server->first, us);
}

void server_stats_last(const struct link *link, uint64_t us)
{
    row_histogram_add(link->server->last, us);
}

void server_stats_error(struct link *link, enum server_error error)
{
    if (link->error_counted)
        return;
    link->error_counted = true;
    counter_add(&link->server->counts[(unsigned)SERVER_ERROR_FIRST + error], 1);
}

void server_stats_unconnected(struct link *link, enum link_failure failure)
{
    static const enum server_error errors[] = {
        [LINK_FAILED_CONNECT] = SERVER_ERROR_CONNECT,
        [LINK_FAILED_TLS] = SERVER_ERROR_TLS,
        [LINK_FAILED_TIMEOUT] = SERVER_ERROR_CONNECT_TIMEOUT,
        [LINK_FAILED_CLOSED] = SERVER_ERROR_CONNECT,
    };

    if (failure < COUNT_OF(errors))
        server_stats_error(link, errors[failure]);
}

void server_stats_retry(const struct link *link)
{
    counter_add(&link->server->counts[SERVER_RETRIES], 1);
}
