/* top_api.h - /api/v1/top: the busiest and the most limited clients of the last minute. */
#ifndef WEIR_ADMIN_TOP_API_H
#define WEIR_ADMIN_TOP_API_H

#include <event2/http.h>

#include "admin/metrics.h"
#include "base/json_writer.h"
#include "proxy/top_clients.h"

enum { TOP_CLIENTS_MAX = 100, TOP_CLIENTS_DEFAULT = 20 };

/* Handles /api/v1/top?by=allowed|limited|cost&n=20. */
void top_answer(const struct admin_view *view, struct evhttp_request *request);

/* Reads at most `n` clients of all workers into `entries`; without memory there are none. Returns
 * their number. `*seconds` as below. */
unsigned top_read(const struct admin_view *view, enum top_by by, struct top_entry *entries,
                  unsigned n, double *seconds);

/* Writes the list `key` of at most `n` clients (up to TOP_CLIENTS_MAX). `*seconds`: the time that
 * the counts cover. */
void top_write(struct json_writer *json, const char *key, const struct admin_view *view,
               enum top_by by, unsigned n, double *seconds);

#endif
