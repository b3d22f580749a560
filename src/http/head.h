/* head.h - message heads: bytes in, slices out. No sockets, no allocation, no repair: what RFC 9112 does not allow is refused.
 *
 *   bytes --head_scan()--> whole head --request_head_parse()---> struct request_head  --request_framing()---> struct framing
 *                                     `-response_head_parse()--> struct response_head --response_framing()-'
 *
 * A field is a pair of slices of the bytes that were parsed; they live as long as the caller keeps those bytes. */
#ifndef WEIR_HTTP_HEAD_H
#define WEIR_HTTP_HEAD_H

#include <stdint.h>

#include "base/slice.h"

/* Fields of a request; fields of an answer, some of which carry a hundred of Set-Cookie. */
enum { HEAD_FIELDS_MAX = 128, RESPONSE_FIELDS_MAX = 1000 };

/* The fields that weir itself acts on; all others are FIELD_OTHER. Found once, while parsing. */
enum field_id {
    FIELD_OTHER,
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
    FIELD_NEVER_FORWARDED, /* X-Original-URL, X-Rewrite-URL: frameworks route by them instead of the target;
                              SCRIPT_NAME, X-Script-Name: servers take them off the path;
                              Proxy: HTTP_PROXY in CGI (CVE-2016-5385) */
    FIELD_PROXY_AUTHENTICATE,
    FIELD_PROXY_AUTHORIZATION,
    FIELD_PROXY_CLAIM, /* what proxies tell of a client and of its request, and servers believe: X-Real-IP,
                          CF-Connecting-IP, X-Forwarded-Port and so on; field_names.c lists them */
    FIELD_PROXY_CONNECTION,
    FIELD_RATELIMIT,        /* RateLimit */
    FIELD_RATELIMIT_POLICY, /* RateLimit-Policy */
    FIELD_REFERER,
    FIELD_RETRY_AFTER,
    FIELD_TE,
    FIELD_TRAILER,
    FIELD_TRANSFER_ENCODING,
    FIELD_UPGRADE,
    FIELD_USER_AGENT,
    FIELD_VIA,
    FIELD_X_CLIENT_ID,
    FIELD_X_FORWARDED_FOR,
    FIELD_X_FORWARDED_HOST,
    FIELD_X_FORWARDED_PROTO,
    FIELD_X_RATE_LIMIT, /* X-Rate-Limit-Policy, -Quota, -Used, -Reset */
    FIELD_X_RATELIMIT,  /* X-RateLimit-Limit, -Remaining, -Reset */
    FIELD_X_REQUEST_ID,
    FIELD_X_WEIR_CLIENT,
    FIELD_ID_COUNT
};

struct field {
    struct slice name;  /* a token, as it came */
    struct slice value; /* without OWS around it; no control bytes but HTAB; may be empty */
    uint8_t id;         /* enum field_id */
    bool hop_by_hop; /* not to be forwarded: RFC 9110 section 7.6.1, by its nature or because Connection names
                        it; or because fields_drop_twins() or fields_drop_named() dropped it */
};

struct fields {
    unsigned count;
    bool odd_names;    /* a name holds a character other than letters, digits and "-" */
    uint64_t present;  /* FIELD_BIT(id): a field with this id is there (at least once) */
    uint64_t repeated; /* FIELD_BIT(id): more than once; X-RateLimit-* and X-Rate-Limit-* share theirs */
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

/* The first field with this id, or NULL. */
static inline const struct field *fields_find(const struct fields *f, enum field_id id)
{
    if (!fields_have(f, id))
        return NULL;
    const struct field *field = f->at;
    while (field->id != id)
        field++;
    return field;
}

/* The next field after `after` (NULL: the first) whose name equals `name` but for case, or NULL. */
const struct field *fields_next_named(const struct fields *f, struct slice name, const struct field *after);

/* Does a Connection field have this option? */
bool connection_names(const struct fields *f, struct slice option);

/* Does Connection name it, so that it goes no further? What the server does not see must not decide what the
 * request counts as. */
bool field_is_named_away(const struct field *field);

/* Are the names different, and the same variable to CGI, WSGI and their successors? They replace every
 * character other than letters and digits, ignoring case: X_Api_Key and X-Api-Key are HTTP_X_API_KEY
 * (RFC 3875 section 4.1.18). */
bool names_are_twins(struct slice a, struct slice b);
/* Is it the twin of a name that weir knows, enum field_id? */
bool name_is_twin_of_known(struct slice name);

/* Drops the fields whose names are twins of one of `names` and equal none of them (ignoring case): they are
 * not forwarded. Without `names` (count 0): twins of the fields that weir knows, enum field_id. */
void fields_drop_twins(struct fields *fields, const struct slice *names, unsigned count);

/* Drops the fields with this name, ignoring case: they are not forwarded and decide nothing. */
void fields_drop_named(struct fields *fields, struct slice name);

/* The id of a field's name, a token. */
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

/* RFC 9110 section 9.2.2: GET, HEAD, OPTIONS, TRACE, PUT, DELETE. */
bool method_is_idempotent(enum method method);

/* The four forms of RFC 9112 section 3.2. */
enum target_form { TARGET_ORIGIN, TARGET_ABSOLUTE, TARGET_AUTHORITY, TARGET_ASTERISK };

struct request_head {
    struct slice whole;               /* all of it */
    struct slice method_text, target; /* as they came */
    enum method method;
    enum target_form form;
    struct slice path;  /* of the target, as it came; "/" if it is empty; "*" of OPTIONS without a path */
    struct slice query; /* from its "?" on, as it came; empty: none */
    bool path_is_plain; /* all servers read the path alike: there is no "%", ";" or "\\", no empty
                           segment, none that begins or ends with a dot */
    struct slice
        host; /* authority to match and forward: from an absolute target, else Host; may be empty in 1.0 */
    uint8_t minor;         /* HTTP/1.minor: 0 or 1 (a higher minor is treated as 1) */
    bool keep_alive;       /* the client will read another response: RFC 9112 section 9.3 */
    bool expects_continue; /* Expect: 100-continue in an HTTP/1.1 request */
    int32_t max_forwards;  /* of OPTIONS; 0: weir answers itself (RFC 9110 section 7.6.2); -1: none */
    struct fields fields;
};

struct response_head {
    uint16_t status;
    uint8_t minor;
    bool keep_alive; /* the server will read another request on this connection (its framing permitting) */
    struct slice reason;
    struct fields fields;
};

/* Why a head was refused: the status to answer with and words for the log and the problem document. */
struct refusal {
    uint16_t status; /* 400, 414, 417, 431, 501, 505; for a response always 502 */
    const char *why; /* static text, e.g. "bare LF in the head" */
};

/* The first line of a head that was refused, as far as it can be told: for logs, nothing may be decided by it. */
struct request_line {
    struct slice method; /* empty: no method is there, and no target then */
    struct slice
        target; /* whatever stands before the next space or line end: any bytes, maybe cut off, maybe none */
};

struct request_line request_line_peek(struct slice bytes);

enum scan { SCAN_PARTIAL, SCAN_WHOLE, SCAN_REFUSED };

/* Looks for the empty line that ends a head. `*seen` is how much of `bytes` was looked at before (0 at first)
 * and is updated, so that a head which comes byte by byte is scanned once. Refuses at once (with 400; from an
 * upstream that is a 502): a bare LF, a first byte with which neither a method nor "HTTP/" begins. All else
 * is left to the parser. SCAN_WHOLE: `*size` is the head's length with its empty line. */
enum scan head_scan(struct slice bytes, size_t *seen, size_t *size, struct refusal *refusal);

/* The same for a request: a first line that is none (HTTP/0.9, another protocol) is refused as soon as it is there,
 * since its sender may wait for an answer before it sends more. */
enum scan request_scan(struct slice bytes, size_t *seen, size_t *size, struct refusal *refusal);

/* How many bytes of CRLF stand before a request line: RFC 9112 section 2.2 has a server ignore at least one.
 * All are, so that the verdict does not depend on where the bytes were cut; the time for a head bounds them.
 * To be asked before each request_scan that has seen nothing yet. */
size_t request_skip_empty_line(struct slice bytes);

/* `whole` is what head_scan found (for a request: after request_skip_empty_line). False: refused, see
 * `*refusal`. Checks everything but framing: request line, target, version, field names and values, the count
 * of fields, Host (RFC 9112 section 3.2), Connection; marks hop-by-hop fields. Content-Length,
 * Transfer-Encoding, Host and the forwarding and identity fields of weir cannot be named away by Connection.
 */
MUST_CHECK bool request_head_parse(struct slice whole, struct request_head *head, struct refusal *refusal);
MUST_CHECK bool response_head_parse(struct slice whole, struct response_head *head, struct refusal *refusal);

/* Scans and parses: SCAN_WHOLE where the head is whole and good. `*size` is the head's, also where it is whole and refused, else 0. A
 * head that comes in one piece, as nearly all do, is looked at once only; one that comes in many is scanned, and parsed when it is
 * whole. For a request: after request_skip_empty_line. */
enum scan request_head_read(struct slice bytes, size_t *seen, size_t *size, struct request_head *head,
                            struct refusal *refusal);
enum scan response_head_read(struct slice bytes, size_t *seen, size_t *size, struct response_head *head,
                             struct refusal *refusal);

#endif
