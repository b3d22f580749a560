/* admin.h - the admin listeners: /healthz, /readyz, /metrics and /api/v1. They run on the main
 * thread's loop and use evhttp: they are for operators and monitoring, not for proxied traffic.
 *
 * This directory owns the answers to operators and monitoring. It reads what workers publish and
 * touches no request on its way. In reading order:
 *
 *   admin.h, admin_socket.h, access.h
 *                                 listeners; one socket; who may ask
 *   answer.h                      how answers are written
 *   metrics.h, metrics_text.h     /metrics: metrics_table.c has the declared counters
 *   status_api.h, policy_api.c, top_api.h, clients_api.h
 *                                 /api/v1
 *   events.h, snapshot.h          a snapshot a second, for the dashboard
 *   dashboard.c                   files of src/admin/dashboard/ */
#ifndef WEIR_ADMIN_ADMIN_H
#define WEIR_ADMIN_ADMIN_H

#include <event2/event.h>

#include "admin/metrics.h"

struct admin;

/* Serves `view` on the listening sockets `fds`, one per admin listener of view->policy. Takes
 * ownership of them and sets them to -1. The workers must outlive it. NULL: no memory; sockets that
 * are not -1 are still the caller's. Sets view->clients, events and history. */
struct admin *admin_new(struct event_base *base, int *fds, struct admin_view *view);
/* Call after a reload, with the new policy in view->policy. */
void admin_reload(struct admin *admin);
void admin_free(struct admin *admin);

/* --- resources that only admin.c serves --- */

struct evhttp_request;

/* policy_api.c: sends the policy in effect, as printed by `weir check`: as JSON if Accept names
 * application/json, else as application/yaml (RFC 9512). */
void policy_answer(const struct admin_view *view, struct evhttp_request *request);

/* dashboard.c: sends the page, its script or its style sheet, by the path. The build embeds these
 * files. They contain no data of the process, so they need no token; their script reads
 * /api/v1/events, which does. */
void dashboard_answer(const struct admin_view *view, struct evhttp_request *request);

#endif
