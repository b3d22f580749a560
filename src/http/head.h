/* head.h - parsing of message heads: bytes in, slices out. No sockets, no allocation. The parser is
 * strict: it refuses what RFC 9112 does not allow and repairs nothing.
 *
 *   bytes --head_scan()--> complete head
 *     --request_head_parse()---> struct request_head  --request_framing()---> struct framing
 *     --response_head_parse()--> struct response_head --response_framing()--> struct framing
 *
 * A field is a pair of slices into the parsed bytes, and is valid as long as those bytes.
 *
 * This directory owns the syntax of HTTP/1.1, and what all versions share: fields, paths, methods.
 * It has no sockets and no events, and allocates nothing on the request path. In reading order:
 *
 *   head.h, parse.h, chars.h      from bytes to slices: request_head.c, response_head.c, fields.c
 *   framing.h, chunked.h, trailers.h    where content ends; its coding; fields after it
 *   path.h, readings.h            normalised paths, patterns; how servers may read a path
 *   response.h, rewrite.h         a response; heads that weir writes
 *   forwarded.h, traceparent.h    single fields */
#ifndef WEIR_HTTP_HEAD_H
#define WEIR_HTTP_HEAD_H

#include <stdint.h>

#include "base/slice.h"
#include "http/version.h"

/* Maximum number of fields in a request and in a response. Some responses have a hundred Set-Cookie
 * fields. */
enum { HEAD_FIELDS_MAX = 128, RESPONSE_FIELDS_MAX = 1000 };

/* The fields of the families that the option `headers` names (limit/header_families.c): ids, and
 * their names in lower case. */
#define FAMILY_IDS(X)                                                                              \
    X(FIELD_RATELIMIT) X(FIELD_X_RATELIMIT) X(FIELD_X_RATELIMIT_OF) X(FIELD_X_RATE_LIMIT)
#define FAMILY_NAMES(X)                                                                            \
    X("ratelimit", FIELD_RATELIMIT)                                                                \
    X("ratelimit-policy", FIELD_RATELIMIT)                                                         \
    X("x-ratelimit-limit", FIELD_X_RATELIMIT)                                                      \
    X("x-ratelimit-reset", FIELD_X_RATELIMIT)                                                      \
    X("x-ratelimit-remaining", FIELD_X_RATELIMIT)                                                  \
    X("x-ratelimit-limit-tokens", FIELD_X_RATELIMIT_OF)                                            \
    X("x-ratelimit-reset-tokens", FIELD_X_RATELIMIT_OF)                                            \
    X("x-ratelimit-limit-requests", FIELD_X_RATELIMIT_OF)                                          \
    X("x-ratelimit-reset-requests", FIELD_X_RATELIMIT_OF)                                          \
    X("x-ratelimit-remaining-tokens", FIELD_X_RATELIMIT_OF)                                        \
    X("x-ratelimit-remaining-requests", FIELD_X_RATELIMIT_OF)                                      \
    X("x-rate-limit-used", FIELD_X_RATE_LIMIT)                                                     \
    X("x-rate-limit-quota", FIELD_X_RATE_LIMIT)                                                    \
    X("x-rate-limit-reset", FIELD_X_RATE_LIMIT)                                                    \
    X("x-rate-limit-policy", FIELD_X_RATE_LIMIT)
#define FAMILY_ID(id) id,

/* Fields that weir interprets; all others are FIELD_OTHER. Set once, by the parser. */
enum field_id {
    FIELD_OTHER,
    FIELD_ACCEPT_ENCODING,
    FIELD_CONNECTION,
    FIELD_CONTENT_LENGTH,
    FIELD_CONTENT_TYPE,
    FIELD_DATE,
    FIELD_EXPECT,
    FIELD_FORWARDED,
    FIELD_HOST,
    FIELD_KEEP_ALIVE,
    FIELD_MAX_FORWARDS,
    FIELD_METHOD_OVERRIDE, /* X-HTTP-Method-Override, X-HTTP-Method, X-Method-Override */
    /* Never forwarded. X-Original-URL, X-Rewrite-URL: frameworks route by them instead of the
     * target. SCRIPT_NAME, X-Script-Name: servers remove them from the path. Proxy: becomes
     * HTTP_PROXY in CGI (CVE-2016-5385). */
    FIELD_NEVER_FORWARDED,
    FIELD_PROXY_AUTHENTICATE,
    FIELD_PROXY_AUTHORIZATION,
    /* Fields in which proxies describe the client and its request, and which servers trust:
     * X-Real-IP, CF-Connecting-IP, X-Forwarded-Port and others. Listed in field_names.c. */
    FIELD_PROXY_CLAIM,
    FIELD_PROXY_CONNECTION,
    FIELD_REFERER,
    FIELD_RETRY_AFTER,
    FIELD_TE,
    FIELD_TRACEPARENT,
    FIELD_TRAILER,
    FIELD_TRANSFER_ENCODING,
    FIELD_UPGRADE,
    FIELD_USER_AGENT,
    FIELD_VIA,
    FIELD_X_CLIENT_ID,
    FIELD_X_FORWARDED_FOR,
    FIELD_X_FORWARDED_HOST,
    FIELD_X_FORWARDED_PROTO,
    FIELD_X_REQUEST_ID,
    FIELD_X_WEIR_CLIENT,
    FAMILY_IDS(FAMILY_ID) FIELD_ID_COUNT
};

struct field {
    struct slice name;  /* a token, as received */
    struct slice value; /* without surrounding OWS; no control bytes except HTAB; may be empty */
    uint8_t id;         /* enum field_id */
    /* Not forwarded. Set for hop-by-hop fields (RFC 9110 section 7.6.1), fields that Connection
     * names, and fields that fields_drop_twins() or fields_drop_named() dropped. */
    bool hop_by_hop;
};

struct fields {
    unsigned count;
    bool odd_names;    /* a name contains a character other than letters, digits and "-" */
    uint64_t present;  /* FIELD_BIT(id): at least one field has this id */
    uint64_t repeated; /* FIELD_BIT(id): several fields have this id */
    /* HTTP/2: a bit per name of the fields that were received as never indexed, and may enter no
     * table of HPACK (hpack_fields.c). Names may share a bit. The parsers set 0. */
    uint64_t never_indexed;
    struct field at[RESPONSE_FIELDS_MAX];
};

#define FIELD_BIT(id) (UINT64_C(1) << (id))

static inline bool fields_have(const struct fields *f, enum field_id id)
{
    return f->present & FIELD_BIT(id);
}

static inline bool fields_repeat(const struct fields *f, enum field_id id)
{
    return f->repeated & FIELD_BIT(id);
}

/* Returns the first field with this id, or NULL. */
static inline const struct field *fields_find(const struct fields *f, enum field_id id)
{
    if (!fields_have(f, id))
        return NULL;
    const struct field *field = f->at;
    while (field->id != id)
        field++;
    return field;
}

/* Returns the next field after `after` (NULL: from the first) whose name equals `name`, ignoring
 * case; NULL if none. */
const struct field *fields_next_named(const struct fields *f, struct slice name,
                                      const struct field *after);

/* Returns whether a Content-Encoding field names a coding, so that the content is compressed or the
 * like (RFC 9110 section 8.4). */
bool fields_name_coding(const struct fields *f);

/* Returns whether a Connection field contains this option. */
bool connection_names(const struct fields *f, struct slice option);

/* Returns after how many seconds the sender closes an idle connection: the least `timeout` in its
 * Keep-Alive fields (RFC 2068 section 19.7.1.1). UINT32_MAX: none, or none that is valid. */
uint32_t keep_alive_timeout(const struct fields *f);

/* Returns whether Connection names this field, so that it is not forwarded. Rules must ignore such
 * a field, because the server does not see it. */
bool field_is_named_away(const struct field *field);

/* Returns whether two different names become the same variable in CGI, WSGI and similar interfaces.
 * These ignore case and replace every character other than letters and digits: X_Api_Key and
 * X-Api-Key are both HTTP_X_API_KEY (RFC 3875 section 4.1.18). */
bool names_are_twins(struct slice a, struct slice b);
/* Returns whether the name is a twin of a name in enum field_id. */
bool name_is_twin_of_known(struct slice name);

/* Drops (does not forward) the fields whose names are twins of one of `names` and equal none of
 * them, ignoring case. If `count` is 0, drops the twins of the names in enum field_id. */
void fields_drop_twins(struct fields *fields, const struct slice *names, unsigned count);
/* Returns whether a field's name is a twin of one of `names` and equals none of them. */
bool fields_have_twin(const struct fields *fields, const struct slice *names, unsigned count);

/* Drops the fields with this name, ignoring case. They are not forwarded and rules ignore them. */
void fields_drop_named(struct fields *fields, struct slice name);

/* Returns the id of a field name, which must be a token. */
enum field_id field_id_of(struct slice name);

enum method {
    METHOD_OTHER,
    METHOD_CONNECT,
    METHOD_DELETE,
    METHOD_GET,
    METHOD_HEAD,
    METHOD_OPTIONS,
    METHOD_PATCH,
    METHOD_POST,
    METHOD_PUT,
    METHOD_TRACE
};

/* Idempotent methods (RFC 9110 section 9.2.2): GET, HEAD, OPTIONS, TRACE, PUT, DELETE. */
bool method_is_idempotent(enum method method);

/* The four forms of RFC 9112 section 3.2. */
enum target_form { TARGET_ORIGIN, TARGET_ABSOLUTE, TARGET_AUTHORITY, TARGET_ASTERISK };

struct request_head {
    struct slice whole;               /* the complete head */
    struct slice method_text, target; /* as received */
    enum method method;
    enum target_form form;
    /* of the target, as received; "/" if empty; "*" for OPTIONS without a path */
    struct slice path;
    struct slice query; /* starting with "?", as received; empty: none */
    /* All servers interpret the path alike: no "%", ";" or "\\", no empty segment, and no
     * segment that begins or ends with a dot. */
    bool path_is_plain;
    /* Authority used to match rules and forwarded as Host: from an absolute target, else from
     * Host. May be empty in HTTP/1.0. */
    struct slice host;
    uint8_t minor; /* HTTP/1.minor: 0 or 1; higher minors are treated as 1 */
    /* the client accepts another response on this connection (RFC 9112 section 9.3) */
    bool keep_alive;
    bool expects_continue; /* Expect: 100-continue in an HTTP/1.1 request */
    /* for OPTIONS; 0: weir answers itself (RFC 9110 section 7.6.2); -1: no limit */
    int32_t max_forwards;
    struct fields fields;
};

struct response_head {
    uint16_t status;
    uint8_t minor;
    enum http_version version; /* for Via; set by the caller of the parser */
    /* the server accepts another request on this connection, if the framing permits */
    bool keep_alive;
    struct slice reason;
    struct fields fields;
};

/* Why a head was refused: response status, and text for the log and the problem document. */
struct refusal {
    uint16_t status; /* 400, 414, 417, 431, 501, 505; responses: always 502 */
    const char *why; /* static text, e.g. "bare LF in the head" */
};

/* First line of a refused head, as far as it can be read. For logs only; no decision uses it. */
struct request_line {
    struct slice method; /* empty: no method found; the target is then empty too */
    /* bytes up to the next space or line end; may be any bytes, truncated, or empty */
    struct slice target;
};

struct request_line request_line_peek(struct slice bytes);

enum scan { SCAN_PARTIAL, SCAN_WHOLE, SCAN_REFUSED };

/* Searches for the empty line that ends a head.
 *
 * `*seen` is the number of bytes already scanned (initially 0). It is updated, so a head that
 * arrives byte by byte is scanned once.
 *
 * SCAN_WHOLE: `*size` is the length of the head including the empty line. SCAN_REFUSED (status
 * 400): a bare LF, or a first byte that starts neither a method nor "HTTP/". All other checks are
 * left to its callers, which replace 400 with 502 for responses. */
enum scan head_scan(struct slice bytes, size_t *seen, size_t *size, struct refusal *refusal);

/* Same as head_scan() for a request. Also refuses a malformed request line (HTTP/0.9, another
 * protocol) as soon as the line is complete, because the sender may wait for a response before it
 * sends more. */
enum scan request_scan(struct slice bytes, size_t *seen, size_t *size, struct refusal *refusal);

/* Returns the number of CRLF bytes before the request line. RFC 9112 section 2.2 asks servers to
 * ignore at least one CRLF; weir ignores all, so that the result does not depend on how the bytes
 * are split into reads. The timeouts for a head and between two requests bound them. Call before
 * each request_scan() with `*seen` 0. */
size_t request_skip_empty_line(struct slice bytes);

/* Parses a complete head, as found by head_scan(). For a request, skip request_skip_empty_line()
 * bytes first. Returns false and sets `*refusal` if the head is invalid.
 *
 * Checks everything except framing: request line, target, version, field names and values, number
 * of fields, Host (RFC 9112 section 3.2) and Connection. Marks hop-by-hop fields. A Connection
 * option has no effect on Content-Length, Transfer-Encoding, Host, or the forwarding and identity
 * fields. */
MUST_CHECK bool request_head_parse(struct slice whole, struct request_head *head,
                                   struct refusal *refusal);
/* The same for a head that weir has written for a server: with the fields that weir adds, it may
 * have more than HEAD_FIELDS_MAX. */
MUST_CHECK bool request_head_parse_forwarded(struct slice whole, struct request_head *head,
                                             struct refusal *refusal);
MUST_CHECK bool response_head_parse(struct slice whole, struct response_head *head,
                                    struct refusal *refusal);

/* Scans and parses in one step. SCAN_WHOLE: the head is complete and valid. `*size` is the length
 * of a complete head, valid or refused, else 0.
 *
 * A head that arrives in one read, as nearly all do, is processed in one pass. Otherwise it is
 * scanned, then parsed once it is complete. A response is refused at the first byte that differs
 * from "HTTP/". For a request, skip request_skip_empty_line() bytes first. */
enum scan request_head_read(struct slice bytes, size_t *seen, size_t *size,
                            struct request_head *head, struct refusal *refusal);
enum scan response_head_read(struct slice bytes, size_t *seen, size_t *size,
                             struct response_head *head, struct refusal *refusal);

#endif
