/* response.h - a response to a client, independent of the client's protocol. weir chooses the
 * fields first; the protocol then serialises them (HTTP/1.1: response_head_write() in rewrite.h).
 *
 * No field of a struct response is specific to one connection: neither Connection, Keep-Alive nor
 * Transfer-Encoding. */
#ifndef WEIR_HTTP_RESPONSE_H
#define WEIR_HTTP_RESPONSE_H

#include <sys/uio.h>

#include "base/text.h"
#include "http/framing.h"

/* What is known about the size of the content before it is sent. */
enum body_kind {
    BODY_NONE,   /* no content, also for HEAD; Content-Length may be present */
    BODY_LENGTH, /* Content-Length is present */
    BODY_UNKNOWN /* HTTP/1.1 sends it chunked; the others mark the end in their own way */
};

struct response {
    uint16_t status;
    struct slice reason;         /* HTTP/1.1 only; may be empty */
    const struct fields *fields; /* as received from the server; NULL: none */
    uint64_t dropped;     /* FIELD_BIT(id): not sent. Fields marked hop_by_hop aren't either */
    struct slice lines;   /* further fields, as lines "Name: value CRLF"; may be empty */
    struct slice upgrade; /* of a 101: the protocol that follows; else empty */
    enum body_kind body;
    struct fields *trailers; /* of content that is given whole; NULL: none */
    bool own;                /* made by weir, which has not used the rest of the request */
    bool client_fault;       /* the request is at fault: HTTP/1.1 closes the connection */
    struct response_image
        *image; /* NULL, or where the protocol may store the serialised response */
};

/* A serialised response of weir's own. A later response that differs in few bytes of the lines or
 * the content is made by overwriting them. Each protocol may send the lines and the content; only
 * one whose head has the same form may send all of it. */
enum { RESPONSE_IMAGE_MAX = 2048, RESPONSE_IMAGE_BARE = 0 };
struct response_image {
    unsigned form; /* of the head, private to a protocol; RESPONSE_IMAGE_BARE: lines alone */
    uint16_t status;
    size_t size;                /* bytes; 0: nothing was stored */
    size_t lines_at, lines;     /* offset and size of the lines */
    size_t content_at, content; /* of the content */
    char bytes[RESPONSE_IMAGE_MAX];
};

/* Starts a response from a server's final response or 101. Appends weir's Via, and Date (an
 * IMF-fixdate) if missing, to `lines`. The caller appends further lines, adds the fields that these
 * replace to `response->dropped`, and sets `response->lines` to the whole text. */
void response_forward(struct response *response, struct text *lines,
                      const struct response_head *head, const struct framing *framing,
                      struct slice date);

/* Takes the next field from `*lines`, which are like response.lines. Returns false at the end.
 * Inline: HTTP/2 calls it for each field of weir's own. */
static inline bool response_next_line(struct slice *lines, struct slice *name, struct slice *value)
{
    if (lines->n == 0)
        return false;
    const char *p = lines->p, *all_end = p + lines->n, *colon = memchr(p, ':', lines->n);
    const char *end = colon ? memchr(colon, '\r', (size_t)(all_end - colon)) : NULL;

    if (!end)
        return false;
    *name = (struct slice){p, (size_t)(colon - p)};
    *value = slice_trim_ows((struct slice){colon + 1, (size_t)(end - colon - 1)});
    *lines = (struct slice){end + 2, (size_t)(all_end - end - 2)};
    return true;
}

/* Appends X-Request-Id, unless the server sent one. */
void response_add_request_id(struct text *lines, const struct response_head *head, struct slice id);

/* Stores a response with `head`, which contains the lines from `lines_at` on, if it fits. */
void response_image_store(struct response_image *image, unsigned form, struct slice head,
                          size_t lines_at, const struct response *response,
                          const struct iovec *content, int count);

/* Returns the end-to-end fields of an interim response (1xx except 101). */
struct response response_interim(const struct response_head *head);

#endif
