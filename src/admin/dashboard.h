/* dashboard.h - the dashboard: files of src/admin/dashboard/ that the build embeds. They contain no
 * data of the process, so they need no token; their script reads /api/v1/events, which does. */
#ifndef WEIR_ADMIN_DASHBOARD_H
#define WEIR_ADMIN_DASHBOARD_H

#include <event2/http.h>

/* Send the page, its script and its style sheet. */
void dashboard_page(struct evhttp_request *request);
void dashboard_script(struct evhttp_request *request);
void dashboard_style(struct evhttp_request *request);

#endif
