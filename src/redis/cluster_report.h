/* cluster_report.h - events of a cluster that are counted or logged once for all threads. Only
 * cluster.c includes this; results are in cluster.h. */
#ifndef WEIR_REDIS_CLUSTER_REPORT_H
#define WEIR_REDIS_CLUSTER_REPORT_H

#include "redis/cluster_map.h"

/* A thread has read the map. Logs each change of the masters once, whichever thread reads it
 * first. */
void redis_cluster_report_map(const struct redis_settings *settings,
                              const struct redis_cluster_map *map);

/* A redirection was followed. */
void redis_cluster_report_redirect(bool asking);

#endif
