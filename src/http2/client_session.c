#include "http2/client_session.h"

#include "http/trailers.h"
#include "http2/session_internal.h"

bool http2_session_accepts(const struct http2_session *s)
{
    return !s->failed && s->shutdown == SHUTDOWN_NONE &&
           nghttp2_session_check_request_allowed(s->ng);
}

unsigned http2_session_capacity(const struct http2_session *s)
{
    uint32_t most =
        s->open
            ? nghttp2_session_get_remote_settings(s->ng, NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS)
            : HTTP2_CAPACITY_UNKNOWN;

    return http2_session_accepts(s) && most > s->stream_count ? most - s->stream_count : 0;
}

void http2_client_session_end(struct http2_session *s)
{
    if (s->shutdown == SHUTDOWN_DONE)
        return;
    s->shutdown = SHUTDOWN_DONE;
    s->work = true;
    if (nghttp2_submit_goaway(s->ng, NGHTTP2_FLAG_NONE, 0, NGHTTP2_NO_ERROR, NULL, 0) != 0)
        s->cause = HTTP2_NO_MEMORY;
}

/* ---- requests -------------------------------------------------------------------------------- */

static const struct slice te_name = SLICE("te"), te_value = SLICE("trailers");

/* Writes the request to session->scratch->pairs. Returns their number, or 0: too many. */
static size_t write_request(struct http2_session *s, const struct request_head *head,
                            struct slice scheme)
{
    nghttp2_nv *pairs = s->scratch->pairs;
    size_t n = 0;

    if (head->fields.count + PSEUDO_COUNT >= HTTP2_SENT_FIELDS_MAX)
        return 0;
    pairs[n++] = http2_pair(s, SLICE(":method"), head->method_text);
    pairs[n++] = http2_pair(s, SLICE(":scheme"), scheme);
    if (head->host.n)
        pairs[n++] = http2_pair(s, SLICE(":authority"), head->host);
    pairs[n++] = http2_pair(s, SLICE(":path"), head->target);
    for (const struct field *field = head->fields.at; field < head->fields.at + head->fields.count;
         field++)
        if (!field->hop_by_hop && field->id != FIELD_HOST)
            pairs[n++] = http2_pair(s, field->name, field->value);
    if (fields_accept_trailers(&head->fields))
        pairs[n++] = http2_pair(s, te_name, te_value);
    http2_never_index(pairs, n, head->fields.never_indexed);
    return n;
}

/* Counts as RFC 9113 section 6.5.2 does; the pseudo-fields other than the target and the host by
 * their largest size. */
bool http2_request_fits(const struct http2_session *s, const struct request_head *head)
{
    enum { LINE = sizeof ":method:scheme:authority:pathhttps" + PSEUDO_COUNT * HEAD_TEXT_ENTRY };
    uint32_t most =
        nghttp2_session_get_remote_settings(s->ng, NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE);
    size_t size = LINE + head->method_text.n + head->target.n + head->host.n;

    for (const struct field *field = head->fields.at; field < head->fields.at + head->fields.count;
         field++)
        if (!field->hop_by_hop && field->id != FIELD_HOST)
            size += field->name.n + field->value.n + HEAD_TEXT_ENTRY;
    if (fields_accept_trailers(&head->fields))
        size += te_name.n + te_value.n + HEAD_TEXT_ENTRY;
    return size <= most;
}

struct http2_stream *http2_open(struct http2_session *s, const struct request_head *head,
                                struct slice scheme, bool content, void *user)
{
    size_t n = write_request(s, head, scheme);
    struct http2_stream *stream = n && http2_session_capacity(s) ? http2_stream_new(s) : NULL;

    if (!stream)
        return NULL;
    nghttp2_data_provider provider = http2_content_of(stream);
    stream->id = nghttp2_submit_request(s->ng, NULL, s->scratch->pairs, n,
                                        content ? &provider : NULL, stream);
    if (stream->id < 0) {
        http2_stream_free(stream);
        return NULL;
    }
    stream->user = user;
    stream->method = (uint8_t)head->method;
    stream->reported = true;
    stream->end_given = !content;
    s->work = s->may_ping = true;
    return stream;
}

bool http2_client_session_ping(struct http2_session *s)
{
    if (!s->may_ping || nghttp2_submit_ping(s->ng, NGHTTP2_FLAG_NONE, NULL) != 0)
        return false;
    s->may_ping = false;
    s->work = true;
    return true;
}

/* ---- closed streams -------------------------------------------------------------------------- */

uint32_t http2_stream_code(const struct http2_stream *stream)
{
    return stream->code;
}

bool http2_stream_unprocessed(const struct http2_stream *stream)
{
    return stream->closed && stream->code == NGHTTP2_REFUSED_STREAM;
}

bool http2_stream_objected(const struct http2_stream *stream)
{
    return stream->closed && !stream->why &&
           (stream->code == NGHTTP2_PROTOCOL_ERROR || stream->code == NGHTTP2_FRAME_SIZE_ERROR ||
            stream->code == NGHTTP2_ENHANCE_YOUR_CALM);
}

const char *http2_stream_why(const struct http2_stream *stream)
{
    return stream->why;
}
