/* admin.h - the admin listener: /healthz, /readyz, /metrics. On the main thread's loop, by evhttp: it is for
 * operators on a loopback address, not for the proxied path. */
#ifndef WEIR_ADMIN_ADMIN_H
#define WEIR_ADMIN_ADMIN_H

#include <event2/event.h>

#include "proxy/worker.h"

struct admin;

/* Listens on policy->admin with the socket `fd`, which it takes over. The workers must outlive it. NULL: no
 * memory. */
struct admin *admin_new(struct event_base *base, int fd, const struct policy *policy,
                        struct worker *const *workers, unsigned count);
/* weir is stopping: /readyz says so from now on. */
void admin_stopping(struct admin *admin);
void admin_free(struct admin *admin);

#endif
