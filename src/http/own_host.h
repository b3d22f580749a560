/* own_host.h - recognises requests of web pages of other sites to a private listener.
 *
 * A page that an operator opens can make a browser send requests to 127.0.0.1. With DNS rebinding,
 * the page's own host name resolves to 127.0.0.1. The browser then treats such requests as
 * same-origin, so Origin and Sec-Fetch-Site do not help. Host does: it contains the page's host
 * name. */
#ifndef WEIR_HTTP_OWN_HOST_H
#define WEIR_HTTP_OWN_HOST_H

#include "base/slice.h"

/* Names that a listener accepts in Host, in lower case. */
struct own_hosts {
    char **names;
    unsigned count;
};

/* Returns true if `host` is an IP address, localhost or one of the names. `host` is the value of a
 * Host field: optional port, IPv6 address in brackets. Case and a trailing dot are ignored. */
bool host_is_own(const struct own_hosts *hosts, struct slice host);

/* Returns the port at the end of `host`; empty: there is none. */
struct slice host_port(struct slice host);

/* Returns whether Origin (RFC 6454 section 7) names the host and port of Host. "null" does not. */
bool origin_is_own(struct slice origin, struct slice host);

struct fields;
/* Returns false if an Origin or Sec-Fetch-Site field of a request with this Host is of another
 * site's page. */
bool fields_are_of_own_page(const struct fields *fields, struct slice host);

/* Returns whether Sec-Fetch-Site (Fetch Metadata) is that of an own page, or of a user action such
 * as an address typed in. */
bool fetch_site_is_own(struct slice site);

#endif
