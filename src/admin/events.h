/* events.h - /api/v1/events: a snapshot a second, as Server-Sent Events (WHATWG HTML, section
 * 9.2). At most EVENT_LISTENERS_MAX clients listen at once. A client that is
 * behind for EVENT_LATE_MAX events in a row is disconnected, so at most that many wait for it. */
#ifndef WEIR_ADMIN_EVENTS_H
#define WEIR_ADMIN_EVENTS_H

#include <event2/event.h>
#include <event2/http.h>

#include "admin/metrics.h"

enum { EVENT_LISTENERS_MAX = 16, EVENT_LATE_MAX = 5 };

struct events;

/* `view` must outlive it. NULL: no memory. */
struct events *events_new(struct event_base *base, const struct admin_view *view);
/* Disconnects all listeners. */
void events_free(struct events *events);

/* Disconnects all listeners, which connect again: the policy, and with it the token, may have
 * changed. */
void events_reload(struct events *events);

/* Handles a request for the events. */
void events_answer(const struct admin_view *view, struct evhttp_request *request);

#endif
