/* access.h - decides whether an admin listener may answer a request.
 *
 * - Pages of other sites, opened in an operator's browser: a page can make a browser send requests
 *   to 127.0.0.1. With DNS rebinding, the page's own host name resolves to 127.0.0.1. The browser
 *   then treats such requests as same-origin, so Origin and Sec-Fetch-Site do not help. Host does:
 *   it contains the page's host name.
 * - read_only and token_file of the listener. */
#ifndef WEIR_ADMIN_ACCESS_H
#define WEIR_ADMIN_ACCESS_H

#include <event2/http.h>

#include "policy/policy.h"

enum {
    ACCESS_PUBLIC = 1,   /* needs no token */
    ACCESS_READ_ONLY = 2 /* served by read_only listeners */
};

/* Returns true if `host` is an IP address, localhost or one of settings->hosts. `host` is the
 * value of a Host field: optional port, IPv6 address in brackets. Case and a trailing dot are
 * ignored. */
MUST_CHECK bool access_host_is_ours(const struct admin_listener *settings, struct slice host);

/* Returns true if the request for a resource with these flags (ACCESS_*) may be handled. Otherwise
 * sends 400, 401 or 403. */
MUST_CHECK bool access_is_allowed(const struct admin_listener *settings, unsigned resource,
                                  struct evhttp_request *request);

#endif
