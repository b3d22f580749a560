/* metrics.h - what all workers counted, as Prometheus text (exposition format 0.0.4). */
#ifndef WEIR_ADMIN_METRICS_H
#define WEIR_ADMIN_METRICS_H

#include <event2/buffer.h>

#include "base/counter_table.h"
#include "proxy/endpoint_set.h"
#include "proxy/worker.h"

/* What the admin listener shows. Owned and kept current by the main thread, on whose loop the listener runs.
 */
struct admin_view {
    struct policy *policy;             /* in force */
    struct endpoint_set *endpoint_set; /* the upstreams' servers under it */
    uint64_t started_us;               /* monotonic */
    uint64_t started_wall_us, policy_loaded_wall_us;
    uint64_t reloads_good, reloads_failed;
    const struct counter_names *rules, *limits;
    const struct quotas *quotas;
    struct worker *const *workers;
    unsigned worker_count;
};

/* Appends what the process uses of the machine, in the names that Prometheus' own clients use. */
void metrics_write_process(struct evbuffer *out, const struct admin_view *view);
/* Appends when the policy was loaded, how reloads went, and when its certificates expire. */
void metrics_write_policy(struct evbuffer *out, const struct admin_view *view);

/* Appends the sums over all workers to `out`; they go on counting meanwhile. */
void metrics_write(struct evbuffer *out, const struct admin_view *view);

#endif
