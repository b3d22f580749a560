/* stats.h - what one worker counts. The worker alone writes; the admin listener reads (relaxed), perhaps a
 * moment old. */
#ifndef WEIR_PROXY_STATS_H
#define WEIR_PROXY_STATS_H

#include "base/counter_table.h"
#include "limit/decision.h"
#include "proxy/cause.h"
#include "proxy/ejection.h"
#include "proxy/retry.h"

struct worker_stats {
    counter_t connections_accepted;
    counter_t connections_open;
    counter_t connections_lingering; /* answered; what their clients still send is dropped */
    counter_t connections_evicted;   /* silent, idle or lingering ones closed to make room */
    counter_t connections_refused;   /* closed at once: a limit of size_limits */
    counter_t proxy_headers_refused; /* from a peer that is not trusted, malformed, or not there in time */
    counter_t tls_handshakes_failed;
    counter_t requests_active;
    counter_t requests_held; /* of these: by a queue, until it is their turn */
    counter_t upstream_connections_opened;
    counter_t upstream_connections_open;
    counter_t upstream_reused; /* requests sent on a connection that had served before */
    counter_t upstream_retries[RETRY_CAUSE_COUNT];
    counter_t upstream_retries_over_budget;
    counter_t upstream_ejections[EJECTION_COUNT];
    counter_t bytes_to_clients, bytes_from_clients; /* content, without heads */
    counter_t quota_hits, quota_refused;
    counter_t errors[CAUSE_COUNT];
    counter_t responses[6];            /* by class of status; [0]: ended without an answer */
    struct counter_table by_rule;      /* rule->row, verdict */
    struct histogram upstream_latency; /* request sent to response head */
    struct histogram held;             /* by a queue, of requests that were */
    struct histogram request_duration; /* request head read to answer written */
};

#endif
