/* dashboard.h - the dashboard: files of src/admin/dashboard/ that the build embeds. They contain no
 * data of the process, so they need no token; their script reads /api/v1/events, which does. */
#ifndef WEIR_ADMIN_DASHBOARD_H
#define WEIR_ADMIN_DASHBOARD_H

#include <event2/http.h>

#include "admin/metrics.h"

/* Sends the page, its script or its style sheet, by the path. */
void dashboard_answer(const struct admin_view *view, struct evhttp_request *request);

#endif
