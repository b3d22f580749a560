/* metrics.h - what all workers counted, as Prometheus text (exposition format 0.0.4). */
#ifndef WEIR_ADMIN_METRICS_H
#define WEIR_ADMIN_METRICS_H

#include <event2/buffer.h>

#include "proxy/worker.h"

/* Appends the sums over `count` workers to `out`. Any thread; the workers go on counting meanwhile. */
void metrics_write(struct evbuffer *out, const struct policy *policy, struct worker *const *workers,
                   unsigned count);

#endif
