/* admin.h - the admin listener: /healthz, /readyz, /metrics and /api/v1. Runs on the main
 * thread's loop and uses evhttp: it is for operators on a loopback address, not for proxied
 * traffic. */
#ifndef WEIR_ADMIN_ADMIN_H
#define WEIR_ADMIN_ADMIN_H

#include <event2/event.h>

#include "admin/metrics.h"

struct admin;

/* Serves `view` on the listening socket `fd`; takes ownership of `fd`. The workers must outlive
 * it. NULL: no memory. */
struct admin *admin_new(struct event_base *base, int fd, const struct admin_view *view);
/* weir is stopping: /readyz fails from now on. */
void admin_stopping(struct admin *admin);
/* Call after a reload, with the new policy in view->policy. */
void admin_reload(struct admin *admin);
void admin_free(struct admin *admin);

#endif
