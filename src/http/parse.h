/* parse.h - what the parsers of requests and responses share; for src/http/ alone.
 *
 * They read one head from the front of bytes of which nothing is known, and refuse it where it is not whole: head_scan() tells those that
 * are not whole yet from those that are bad. */
#ifndef WEIR_HTTP_PARSE_H
#define WEIR_HTTP_PARSE_H

#include "http/chars.h"
#include "http/head.h"

static inline bool refuse(struct refusal *refusal, uint16_t status, const char *why)
{
    *refusal = (struct refusal){status, why};
    return false;
}

/* The first byte from `p` on that is not in `classes`, or `end`. */
static inline const char *skip_class(const char *p, const char *end, unsigned classes)
{
    while (p < end && char_is(*p, classes))
        p++;
    return p;
}

static inline struct slice slice_between(const char *from, const char *to)
{
    return (struct slice){from, (size_t)(to - from)};
}

/* Does a line end at `p`? */
static inline bool is_line_end(const char *p, const char *end)
{
    return end - p >= 2 && p[0] == '\r' && p[1] == '\n';
}

/* Is there at least one byte, and all of class CHAR_TOKEN? */
bool slice_is_token(struct slice s);

/* "HTTP/" DIGIT "." DIGIT at `p` (RFC 9112 section 2.3); `*minor` is 0 or 1. The first byte after it, behind which at least
 * two more stand, or NULL: refused. */
const char *version_parse(const char *p, const char *end, uint8_t *minor, struct refusal *refusal);

/* The field lines from `p` up to an empty line, at most `max` of them. The first byte after that, or NULL: refused. */
const char *fields_parse(const char *p, const char *end, unsigned max, struct fields *fields,
                         struct refusal *refusal);

/* Reads the Connection fields (RFC 9110 section 7.6.1): marks the fields that they name and says whether the
 * sender keeps the connection (RFC 9112 section 9.3). */
bool connection_parse(struct fields *fields, uint8_t minor, bool *keep_alive, struct refusal *refusal);

enum method method_of(struct slice text);

/* Splits the target into what weir acts on: form, path, query, and host where the target is absolute. */
bool target_parse(struct request_head *head, struct refusal *refusal);

/* uri-host [ ":" port ] with at least one byte of host: RFC 9110 section 7.2, RFC 3986 section 3.2.2. */
bool authority_is_valid(struct slice authority);

/* Do an absolute target's authority and Host name the same (RFC 9112 section 3.2.2)? Case does not count; a port that is
 * the default of the target's scheme, or empty, is none (RFC 9110 section 4.2.3). */
bool authority_agrees(const struct request_head *head, struct slice host);

#endif
