/* parse.h - what the parsers of requests and responses share; for src/http/ alone.
 *
 * A whole head ends with CRLF and holds CRLF CRLF nowhere else (head_scan saw to it), so every scan for bytes
 * of one class ends at a CR or LF at the latest and needs no other bound. */
#ifndef WEIR_HTTP_PARSE_H
#define WEIR_HTTP_PARSE_H

#include "http/chars.h"
#include "http/head.h"

static inline bool refuse(struct refusal *refusal, uint16_t status, const char *why)
{
    *refusal = (struct refusal){status, why};
    return false;
}

/* The first byte from `p` on that is not in `classes`. */
static inline const char *skip_class(const char *p, unsigned classes)
{
    while (char_is(*p, classes))
        p++;
    return p;
}

static inline struct slice slice_between(const char *from, const char *to)
{
    return (struct slice){from, (size_t)(to - from)};
}

/* Is there at least one byte, and all of class CHAR_TOKEN? */
bool slice_is_token(struct slice s);

/* Does `whole` end with the CRLF of a last line and the empty line? */
bool head_is_whole(struct slice whole);

/* "HTTP/" DIGIT "." DIGIT at `p` (RFC 9112 section 2.3); `*minor` is 0 or 1. The first byte after it, or
 * NULL: refused. */
const char *version_parse(const char *p, const char *end, uint8_t *minor, struct refusal *refusal);

/* The field lines from `p` up to the empty line that ends at `end`. */
bool fields_parse(const char *p, const char *end, struct fields *fields, struct refusal *refusal);

/* Reads the Connection fields (RFC 9110 section 7.6.1): marks the fields that they name and says whether the
 * sender keeps the connection (RFC 9112 section 9.3). */
bool connection_parse(struct fields *fields, uint8_t minor, bool *keep_alive, struct refusal *refusal);

/* The id of a field's name, a token. */
enum field_id field_id_of(struct slice name);
enum method method_of(struct slice text);

/* Splits the target into what weir acts on: form, path_and_query, and host where the target is absolute. */
bool target_parse(struct request_head *head, struct refusal *refusal);

/* uri-host [ ":" port ] with at least one byte of host: RFC 9110 section 7.2, RFC 3986 section 3.2.2. */
bool authority_is_valid(struct slice authority);

#endif
