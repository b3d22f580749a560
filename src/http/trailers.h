/* trailers.h - trailer fields (RFC 9110 section 6.5): parsing, and which of them weir forwards.
 *
 * A trailer never becomes a header field. weir keeps trailers apart from the head, and drops those
 * that have a meaning there if another recipient merges them into it (section 6.5.1): framing,
 * routing, authentication, request modifiers, content format, and every field that weir itself
 * interprets. */
#ifndef WEIR_HTTP_TRAILERS_H
#define WEIR_HTTP_TRAILERS_H

#include "base/text.h"
#include "http/head.h"

enum {
    TRAILERS_MAX = 8 * 1024, /* bytes of all trailer lines; HTTP/2: of the header list */
    TRAILER_FIELDS_MAX = 100,
    TRAILERS_TEXT_MAX = TRAILERS_MAX + 4 * TRAILER_FIELDS_MAX /* of trailers_write() */
};

/* Parses field lines and the empty line after them. Fields that must not be trailers are marked
 * hop_by_hop: they are not forwarded. The slices point into `text`. Returns false if a line is
 * malformed or there are more than TRAILER_FIELDS_MAX; `*why` is then a static text. */
MUST_CHECK bool trailers_parse(struct slice text, struct fields *trailers, const char **why);

/* Returns whether at least one of the trailers is forwarded. */
bool trailers_any(const struct fields *trailers);

/* Writes the lines of the trailers that are forwarded, without an empty line. */
void trailers_write(struct text *out, const struct fields *trailers);

/* Returns whether the client accepts trailers: "TE: trailers", in HTTP/1.1 only if Connection names
 * TE (RFC 9110 section 10.1.4): otherwise it may be meant for another connection. */
bool te_accepts_trailers(const struct request_head *head, enum http_version version);
/* The same in HTTP/2, whose only TE this is (RFC 9113 section 8.2.2). */
bool fields_accept_trailers(const struct fields *fields);
static inline bool request_accepts_trailers(const struct request_head *head,
                                            enum http_version version)
{
    return fields_have(&head->fields, FIELD_TE) && te_accepts_trailers(head, version);
}

#endif
