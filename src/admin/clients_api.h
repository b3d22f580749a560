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

#endif
