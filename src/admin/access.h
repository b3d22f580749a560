/* access.h - decides whether an admin listener may answer a request.
 *
 * - Pages of other sites, opened in an operator's browser: see http/own_host.h.
 * - read_only and token_file of the listener. */
#ifndef WEIR_ADMIN_ACCESS_H
#define WEIR_ADMIN_ACCESS_H

#include <event2/http.h>

#include "policy/policy.h"

enum {
    ACCESS_PUBLIC = 1,   /* needs no token */
    ACCESS_READ_ONLY = 2 /* served by read_only listeners */
};

/* Returns true if the request for a resource with these flags (ACCESS_*) may be handled. Otherwise
 * sends 400, 401 or 403. */
MUST_CHECK bool access_is_allowed(const struct admin_listener *settings, unsigned resource,
                                  struct evhttp_request *request);

#endif
