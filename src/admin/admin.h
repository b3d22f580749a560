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
 *   status_api.h, policy_api.h, top_api.h, clients_api.h
 *                                 /api/v1
 *   events.h, snapshot.h          a snapshot a second, for the dashboard
 *   dashboard.h                   files of src/admin/dashboard/ */
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

#endif
