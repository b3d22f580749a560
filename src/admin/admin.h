/* admin.h - the admin listener: /healthz, /readyz, /metrics and /api/v1. On the main thread's loop, by evhttp: it is for
 * operators on a loopback address, not for the proxied path. */
#ifndef WEIR_ADMIN_ADMIN_H
#define WEIR_ADMIN_ADMIN_H

#include <event2/event.h>

#include "admin/metrics.h"

struct admin;

/* Serves `view` on the listening socket `fd`, which it takes over. The workers outlive it. NULL: no memory.
 */
struct admin *admin_new(struct event_base *base, int fd, const struct admin_view *view);
/* weir is stopping: /readyz says so from now on. */
void admin_stopping(struct admin *admin);
/* Another policy is in force, and view->policy is it. */
void admin_reload(struct admin *admin);
void admin_free(struct admin *admin);

#endif
