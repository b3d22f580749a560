/* path.h - the normal form of a request's path, on which rules are matched, and the patterns that match it. */
#ifndef WEIR_HTTP_PATH_H
#define WEIR_HTTP_PATH_H

#include "base/text.h"

/* Writes the normal form of `path` (RFC 3986 section 6.2.2): percent codes of unreserved characters, of non-ASCII octets
 * and of the space are decoded; all others are written with capital digits, since a reserved character and its code are
 * not the same. Dot segments, empty segments and `;parameters` stay. `path` starts with "/", or is "*". False: a bad
 * percent code, or one of NUL, or no room in `out`. Never longer than `path`; linear in its length. */
MUST_CHECK bool path_normalise(struct slice path, struct text *out);

/* Does the path have a segment "." or "..", with its dots percent-coded or not? */
bool path_has_dot_segments(struct slice path);

/* Writes the path without these segments (RFC 3986 section 5.2.4), other segments as they came. `path` starts with "/".
 * False: no room in `out`. Never longer than `path`. */
MUST_CHECK bool path_remove_dot_segments(struct slice path, struct text *out);

/* Does a pattern of the policy match a path? Segment by segment: "**" as the last one stands for that
 * path and all below it ("/v1" with "**" below matches /v1, /v1/ and /v1/a/b); "*" within one stands for any
 * bytes, or none; everything else for itself. Linear but for "*" (backtracks within a segment). */
bool path_matches(struct slice pattern, struct slice path);

/* The same for hosts: `pattern` may start with "*." (one label or more). Case does not count; a port
 * and a "." at the end are ignored. */
bool host_matches(struct slice pattern, struct slice host);

#endif
