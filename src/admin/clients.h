/* clients.h - /api/v1/clients/ID: where a client stands, a fresh start for it, and quotas that are granted for a time.
 *
 * Asked of Redis over one connection, made when it is first needed, on the main thread's loop. Nothing waits:
 * an answer is given when Redis has given its own, or after CLIENTS_DEADLINE_US; no more than
 * CLIENTS_ASKING_MAX requests are under way at once. */
#ifndef WEIR_ADMIN_CLIENTS_H
#define WEIR_ADMIN_CLIENTS_H

#include <event2/event.h>
#include <event2/http.h>

#include "policy/policy.h"

enum { CLIENTS_DEADLINE_US = 3000000, CLIENTS_ASKING_MAX = 16 };

struct clients_desk;

/* NULL: no memory. Frees as admin_free does: requests under way are answered with 503. */
struct clients_desk *clients_desk_new(struct event_base *base, struct policy *policy);
void clients_desk_free(struct clients_desk *desk);

/* Another policy is in force. Requests under way are answered with 503. */
void clients_desk_reload(struct clients_desk *desk, struct policy *policy);

/* Answers a request for the client named by `id`, which is still percent-encoded. */
void clients_answer(struct clients_desk *desk, struct evhttp_request *request, struct slice id);

#endif
