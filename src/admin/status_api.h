/* status_api.h - /api/v1/status, and the parts of it that events repeat. */
#ifndef WEIR_ADMIN_STATUS_API_H
#define WEIR_ADMIN_STATUS_API_H

#include <event2/http.h>

#include "admin/metrics.h"
#include "base/json_writer.h"

/* Handles /api/v1/status. */
void status_answer(const struct admin_view *view, struct evhttp_request *request);

/* Writes the members version, pid, state, uptime_seconds, policy_file and problems. */
void status_write_process(struct json_writer *json, const struct admin_view *view);
/* Writes the members of "redis": address, topology and the workers' connections. Call only if the
 * policy needs Redis. */
void status_write_redis(struct json_writer *json, const struct admin_view *view);
/* Writes "upstreams". */
void status_write_upstreams(struct json_writer *json, const struct admin_view *view);

#endif
