/* chart_history.h - the last ten minutes, a sample a second: so the charts of the dashboard begin
 * with what happened before the page was opened. Bounded, and independent of the policy's size. */
#ifndef WEIR_ADMIN_CHART_HISTORY_H
#define WEIR_ADMIN_CHART_HISTORY_H

#include <event2/event.h>
#include <event2/http.h>

#include "admin/metrics.h"

enum { CHART_SAMPLES_MAX = 600 };

struct chart_history;

/* Takes a sample a second from now on. NULL: no memory. */
struct chart_history *chart_history_new(struct event_base *base, const struct admin_view *view);
void chart_history_free(struct chart_history *history);

/* Handles /api/v1/history. */
void chart_history_answer(const struct admin_view *view, struct evhttp_request *request);

#endif
