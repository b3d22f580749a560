/* api.h - /api/v1: status, events, policy and clients as JSON, for dashboards and scripts.
 * docs/admin-api.yaml describes it. */
#ifndef WEIR_ADMIN_API_H
#define WEIR_ADMIN_API_H

#include <event2/http.h>

#include "admin/chart_history.h"
#include "admin/clients_api.h"
#include "admin/events.h"
#include "admin/metrics.h"

struct api {
    const struct admin_view *view;
    struct clients_api *clients;
    struct events *events;
    struct chart_history *history;
};

enum { ADMIN_PATHS_MAX = 1024 }; /* bytes of the paths that a 404 lists, and its other words */

/* Handles any request under /api/. */
void api_answer(struct api *api, struct evhttp_request *request);

/* Appends the paths of the API, separated by ", ". */
void api_list(struct text *out);

#endif
