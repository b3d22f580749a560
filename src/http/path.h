/* path.h - normalization of request paths, and matching of paths and hosts against patterns. */
#ifndef WEIR_HTTP_PATH_H
#define WEIR_HTTP_PATH_H

#include "base/text.h"

/* Writes the normal form of `path` (RFC 3986 section 6.2.2), on which rules are matched.
 *
 * - Percent-encoded unreserved characters, non-ASCII octets and spaces are decoded.
 * - Other percent codes stay, with upper-case digits: a reserved character and its code differ.
 * - Dot segments, empty segments and `;parameters` stay.
 *
 * `path` starts with "/" or is "*". The result is never longer than `path`; time is linear. Returns
 * false if a percent code is invalid or encodes NUL, or if `out` is full. */
MUST_CHECK bool path_normalise(struct slice path, struct text *out);

/* Returns whether the path has a "." or ".." segment. The dots may be percent-encoded. */
bool path_has_dot_segments(struct slice path);

/* Writes the path without dot segments (RFC 3986 section 5.2.4); other segments are copied
 * unchanged. `path` starts with "/". The result is never longer than `path`. Returns false if `out`
 * is full. */
MUST_CHECK bool path_remove_dot_segments(struct slice path, struct text *out);

/* Returns whether a policy pattern matches a path, segment by segment.
 *
 * - "**" as the last segment matches the path above it and everything below: "/v1" followed by "**"
 *   matches /v1, /v1/ and /v1/a/b.
 * - "*" within a segment matches any bytes, or none.
 * - Everything else matches itself.
 *
 * Time is linear in both lengths. Adds the bytes that were looked at to `*steps`. */
bool path_matches(struct slice pattern, struct slice path, size_t *steps);

/* Returns whether the pattern matches the text; "*" stands for any bytes, or none. Time is linear
 * in both lengths. Adds the bytes that were looked at to `*steps`. */
bool glob_matches(struct slice pattern, struct slice text, size_t *steps);

/* Returns whether a pattern matches a host: `pattern` may start with "*." (one or more labels).
 * Ignores case, the port and a trailing dot. */
bool host_matches(struct slice pattern, struct slice host);

/* Returns the host without its port and the trailing dot of an absolute name (RFC 1034 section
 * 3.1): "example.com." is the same host as "example.com". */
struct slice host_without_port(struct slice host);

#endif
