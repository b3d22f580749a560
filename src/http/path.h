/* path.h - the normal form of a request's path, on which rules are matched. What goes upstream stays as it
 * came. */
#ifndef WEIR_HTTP_PATH_H
#define WEIR_HTTP_PATH_H

#include "base/text.h"

/* Writes the normal form of `path_and_query` without its query: percent-decoded once (RFC 3986
 * section 6.2.2.2, and beyond it every octet, so that no coded form slips past a rule), doubled slashes made
 * one, dot segments resolved (RFC 3986 section 5.2.4). `;params` stay. The result starts with "/" ("*" stays
 * "*"). False: a bad percent code, a decoded NUL, or no room in `out`. Linear in the path's length. */
MUST_CHECK bool path_normalise(struct slice path_and_query, struct text *out);

/* Does a pattern of the policy match a normal form? Segment by segment: "**" as the last one stands for that
 * path and all below it ("/v1" with "**" below matches /v1, /v1/ and /v1/a/b); "*" within one stands for any
 * bytes, or none; everything else for itself. Linear but for "*" (backtracks within a segment). */
bool path_matches(struct slice pattern, struct slice path);

/* The same for hosts: `pattern` may start with "*." (one label or more). Case does not count; a port
 * and a "." at the end are ignored. */
bool host_matches(struct slice pattern, struct slice host);

#endif
