/* origin.h - whom the admin listener answers: not pages of other sites that an operator's browser shows.
 *
 * A page may have a browser send requests to 127.0.0.1. With DNS rebinding, where the page's own name is resolved to
 * 127.0.0.1, the browser takes them for requests to the page's site, and Origin and Sec-Fetch-Site say nothing. What is
 * left is Host, which then has that name. */
#ifndef WEIR_ADMIN_ORIGIN_H
#define WEIR_ADMIN_ORIGIN_H

#include <event2/http.h>

#include "policy/policy.h"

/* Is it an IP address, localhost or one of settings->hosts? `host` is the value of a Host field: with or without a port, an
 * IPv6 address in brackets; letters in any case, and a name may end in a dot. */
MUST_CHECK bool origin_host_is_ours(const struct admin_settings *settings, struct slice host);

/* May the request be answered? Otherwise it was answered with 400 or 403. */
MUST_CHECK bool origin_is_ours(const struct admin_settings *settings, struct evhttp_request *request);

#endif
