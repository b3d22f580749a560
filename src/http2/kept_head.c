/* kept_head.c - the header section under construction. HPACK allows one at a time per connection,
 * so it is built in the worker's buffers. Only a section that is still incomplete when the input
 * ends is copied to the session, until its next field arrives. */
#include <stdlib.h>

#include "http/trailers.h"
#include "http2/session_internal.h"

void http2_head_drop(struct http2_session *s)
{
    free(s->kept);
    s->kept = NULL;
    s->head_of = NULL;
    if (s->scratch->used_by == s)
        s->scratch->used_by = NULL;
}

void http2_head_begin(struct http2_session *s, struct http2_stream *stream, enum section section)
{
    bool trailers = section == SECTION_TRAILERS;

    http2_head_drop(s);
    s->head_of = stream;
    s->head_since_us = s->now_us;
    s->section = section;
    s->scratch->used_by = s;
    head_text_begin(&s->text, s->scratch->head, s->scratch->side,
                    trailers && s->max_header_list > TRAILERS_MAX ? TRAILERS_MAX
                                                                  : s->max_header_list);
}

/* Copies the kept bytes back, at the first field after an interruption. */
void http2_head_resume(struct http2_session *s)
{
    if (s->scratch->used_by == s)
        return;
    memcpy(s->scratch->head, s->kept, s->text.out.n);
    memcpy(s->scratch->side, s->kept + s->text.out.n, s->text.side.n);
    s->scratch->used_by = s;
}

bool http2_head_keep(struct http2_session *s)
{
    if (!s->head_of || s->scratch->used_by != s)
        return true;
    free(s->kept);
    s->scratch->used_by = NULL;
    if (!(s->kept = malloc(s->text.out.n + s->text.side.n + 1)))
        return false;
    memcpy(s->kept, s->text.out.p, s->text.out.n);
    memcpy(s->kept + s->text.out.n, s->text.side.p, s->text.side.n);
    return true;
}
