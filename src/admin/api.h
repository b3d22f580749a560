/* api.h - /api/v1: status, policy and clients as JSON, for dashboards and scripts. */
#ifndef WEIR_ADMIN_API_H
#define WEIR_ADMIN_API_H

#include <event2/http.h>

#include "admin/clients_api.h"
#include "admin/metrics.h"

/* Handles any request under /api/. */
void api_answer(const struct admin_view *view, bool stopping, struct clients_api *api,
                struct evhttp_request *request);

#endif
