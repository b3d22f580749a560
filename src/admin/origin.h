/* origin.h - protects the admin listener against requests from other sites' pages in an
 * operator's browser.
 *
 * A page can make a browser send requests to 127.0.0.1. With DNS rebinding, the page's own host
 * name resolves to 127.0.0.1. The browser then treats such requests as same-origin, so Origin
 * and Sec-Fetch-Site do not help. Host does: it contains the page's host name. */
#ifndef WEIR_ADMIN_ORIGIN_H
#define WEIR_ADMIN_ORIGIN_H

#include <event2/http.h>

#include "policy/policy.h"

/* Returns true if `host` is an IP address, localhost or one of settings->hosts. `host` is the
 * value of a Host field: optional port, IPv6 address in brackets. Case and a trailing dot are
 * ignored. */
MUST_CHECK bool origin_host_is_ours(const struct admin_settings *settings, struct slice host);

/* Returns true if the request may be handled. Otherwise sends 400 or 403. */
MUST_CHECK bool origin_is_ours(const struct admin_settings *settings, struct evhttp_request *request);

#endif
