/* clients_api.h - /api/v1/clients/ID: where a client stands, a fresh start for it, and quotas that are granted for a time.
 *
 * Asked of Redis over one connection, made when it is first needed, on the main thread's loop. Nothing waits:
 * an answer is given when Redis has given its own, or after CLIENTS_DEADLINE_US; no more than
 * PENDING_QUERIES_MAX requests are under way at once. */
#ifndef WEIR_ADMIN_CLIENTS_API_H
#define WEIR_ADMIN_CLIENTS_API_H

#include <event2/event.h>
#include <event2/http.h>

#include "policy/policy.h"

enum { CLIENTS_DEADLINE_US = 3000000, PENDING_QUERIES_MAX = 16 };

struct clients_api;

/* NULL: no memory. Frees as admin_free does: requests under way are answered with 503. */
struct clients_api *clients_api_new(struct event_base *base, struct policy *policy);
void clients_api_free(struct clients_api *api);

/* Another policy is in force. Requests under way are answered with 503. */
void clients_api_reload(struct clients_api *api, struct policy *policy);

/* Answers a request for the client named by `id`, which is still percent-encoded. */
void clients_answer(struct clients_api *api, struct evhttp_request *request, struct slice id);

#endif
