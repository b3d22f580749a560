/* parse.h - functions shared by the request and response parsers. Private to src/http/.
 *
 * The parsers read one head from untrusted bytes and refuse an incomplete head. head_scan()
 * distinguishes incomplete heads from invalid ones. */
#ifndef WEIR_HTTP_PARSE_H
#define WEIR_HTTP_PARSE_H

#include "http/chars.h"
#include "http/head.h"

static inline bool refuse(struct refusal *refusal, uint16_t status, const char *why)
{
    *refusal = (struct refusal){status, why};
    return false;
}

/* Returns the first byte from `p` on that is not in `classes`, or `end`. */
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

/* Returns whether there is a CRLF at `p`. */
static inline bool is_line_end(const char *p, const char *end)
{
    return end - p >= 2 && memcmp(p, "\r\n", 2) == 0;
}

/* Returns whether the slice is not empty and all its bytes are CHAR_TOKEN. */
bool slice_is_token(struct slice s);

/* Parses "HTTP/" DIGIT "." DIGIT at `p` (RFC 9112 section 2.3). Sets `*minor` to 0 or 1. Returns
 * the byte after it, from which at least two bytes are left; NULL if refused. */
const char *version_parse(const char *p, const char *end, uint8_t *minor, struct refusal *refusal);

/* Parses field lines from `p` up to an empty line, at most `max` of them. Returns the first byte
 * after the empty line; NULL if refused. */
const char *fields_parse(const char *p, const char *end, unsigned max, struct fields *fields,
                         struct refusal *refusal);

/* Parses the Connection fields (RFC 9110 section 7.6.1). Marks the fields that they name and sets
 * `*keep_alive` (RFC 9112 section 9.3). */
bool connection_options_parse(struct fields *fields, uint8_t minor, bool *keep_alive,
                              struct refusal *refusal);

static inline bool connection_parse(struct fields *fields, uint8_t minor, bool *keep_alive,
                                    struct refusal *refusal)
{
    *keep_alive = minor >= 1;
    return !fields_have(fields, FIELD_CONNECTION) ||
           connection_options_parse(fields, minor, keep_alive, refusal);
}

enum method method_of(struct slice text);

/* Splits the target into form, path, query and, for an absolute target, host. */
bool target_parse(struct request_head *head, struct refusal *refusal);

/* uri-host [ ":" port ] with a non-empty host: RFC 9110 section 7.2, RFC 3986 section 3.2.2. */
bool authority_is_valid(struct slice authority);

/* Returns whether Host equals the authority of an absolute target (RFC 9112 section 3.2.2). Ignores
 * case and a port that is empty or the scheme's default (RFC 9110 section 4.2.3). */
bool authority_agrees(const struct request_head *head, struct slice host);

#endif
