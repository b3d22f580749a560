/* rewrite.h - heads are always written out anew, never passed through (RFC 9110 section 7.6). */
#ifndef WEIR_HTTP_REWRITE_H
#define WEIR_HTTP_REWRITE_H

#include "base/text.h"
#include "http/framing.h"

/* What weir says about itself on the way upstream. */
struct forward_facts {
    struct slice peer_ip; /* appended to X-Forwarded-For; empty (a unix peer): nothing is */
    bool peer_trusted;    /* X-Forwarded-Proto, X-Forwarded-Host, Forwarded and FIELD_PROXY_CLAIM are believed
                          from this peer, else replaced or dropped */
    bool forwarded;       /* say it in Forwarded (RFC 7239) as well */
    struct slice scheme;  /* "http" or "https" */
    struct slice path;    /* in place of the target's, where it is not forwarded as it came; else empty */
    struct slice
        host; /* Host where the request has none (HTTP/1.0), e.g. the upstream's address; may be empty */
    struct slice client; /* X-Weir-Client, e.g. "id:client-2"; empty: none is sent (a forged one is removed
                            all the same) */
    struct slice request_id; /* X-Request-Id, passed on or made by the caller */
    struct slice
        upgrade; /* the protocol asked for, where the caller would tunnel it; empty: none. Never "h2c" */
};

/* The request as it goes upstream: always HTTP/1.1, the target in origin-form (or "*"), one Host, no
 * hop-by-hop fields, the framing as understood (Content-Length or "Transfer-Encoding: chunked"), Via appended
 * with the version received, Expect kept where it was 100-continue. The caller checks out->failed. */
void request_head_write(struct text *out, const struct request_head *head, const struct framing *framing,
                        const struct forward_facts *facts);

/* What becomes of a response on its way to the client. */
struct response_plan {
    uint8_t client_minor; /* 0: no Transfer-Encoding may be sent */
    bool close;           /* say Connection: close, else keep-alive to 1.0 clients */
    bool chunked;         /* the content goes out chunked */
    bool limited;         /* drop the upstream's own rate-limit fields (FIELD_RATELIMIT*, FIELD_X_RATE*, not
                             Retry-After) */
    struct slice rate_fields; /* whole lines "Name: value CRLF" to add; may be empty */
    struct slice request_id;  /* X-Request-Id to add where the upstream sent none; may be empty */
    struct slice keep_alive;  /* the fields of a connection that is kept, whole lines; may be empty */
    struct slice upgrade;     /* of a 101 to an upgrade that was asked for; else empty */
};

/* The response as it goes to the client: always "HTTP/1.1", no hop-by-hop fields, framing as planned
 * (Content-Length is kept as it came where there is one and not `chunked`, also for HEAD and 304), the Upgrade
 * fields of a 426 kept for HTTP/1.1 clients, Via appended, Date added where there is none (`date`: IMF-fixdate). */
void response_head_write(struct text *out, const struct response_head *head, const struct response_plan *plan,
                         struct slice date);

/* An interim response (1xx but 101): status line and end-to-end fields. */
void interim_head_write(struct text *out, const struct response_head *head);

/* The standard reason phrase (RFC 9110 section 15), or "". */
const char *reason_phrase(unsigned status);

/* IMF-fixdate (RFC 9110 section 5.6.7) of a time in seconds since 1970; writes 29 bytes, no NUL. */
void http_date_write(char out[29], int64_t seconds);

#endif
