/* clients_api.h - /api/v1/clients/ID: shows a client's usage, resets it, and grants temporary
 * quotas.
 *
 * Queries Redis over one connection, which is opened on first use, on the main thread's loop.
 * Nothing blocks: the response is sent when Redis has replied, or after CLIENTS_DEADLINE_US. At
 * most PENDING_QUERIES_MAX requests are in progress at once. */
#ifndef WEIR_ADMIN_CLIENTS_API_H
#define WEIR_ADMIN_CLIENTS_API_H

#include <event2/event.h>
#include <event2/http.h>

#include "admin/client_query.h"
#include "admin/metrics.h"

enum { CLIENTS_DEADLINE_US = 3000000, PENDING_QUERIES_MAX = 16 };

#define CLIENTS_PATH "/api/v1/clients/"

struct clients_api;

/* NULL: no memory. clients_api_free() answers requests in progress with 503. */
struct clients_api *clients_api_new(struct event_base *base, struct policy *policy);
void clients_api_free(struct clients_api *api);

/* Switches to a new policy. Requests in progress are answered with 503. */
void clients_api_reload(struct clients_api *api, struct policy *policy);

/* Handles a request below CLIENTS_PATH; the rest of its path is the name of a client. */
void clients_answer(const struct admin_view *view, struct evhttp_request *request);

/* --- client_body.c: the answer --- */

/* Writes the results of a completed query of this kind, by json_writer_growing(). */
void client_body_write(struct text *out, const struct client_query *query,
                       enum client_query_kind kind, const struct identity *identity,
                       const struct query_descriptor *descriptor);

/* --- grant_body.c: the content of a PUT, {"quota": 100, "for": "1h"} --- */

enum { GRANT_WHY_MAX = 160 };

/* Parses a JSON object (RFC 8259) with a quota (0 or more, -1, "unlimited", or null for none)
 * and, unless the quota is none, a duration. *quota is GRANT_NONE for none. False: `why`
 * describes what was expected. */
MUST_CHECK bool grant_body_read(struct slice body, int64_t *quota, int64_t *us,
                                char why[static GRANT_WHY_MAX]);

#endif
