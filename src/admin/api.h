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

/* Handles any request under /api/. */
void api_answer(struct api *api, struct evhttp_request *request);

#endif
