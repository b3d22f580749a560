#include "content/event_stream.h"

enum line_state {
    STATE_LINE,    /* at the start of a line */
    STATE_LINE_LF, /* the same, after CR: a LF belongs to it */
    STATE_NAME,    /* in the field name */
    STATE_SPACE,   /* after "data:": one space is no content */
    STATE_DATA,    /* in the content of a data line */
    STATE_OTHER    /* in a comment or another field */
};

static const struct slice data_name = SLICE("data");

void event_stream_begin(struct event_stream *e)
{
    e->state = STATE_LINE;
    e->matched = 0;
    e->has_data = false;
}

static void end_event(struct event_stream *e)
{
    if (e->has_data)
        e->end(e);
    e->has_data = false;
}

/* A data line begins. */
static void begin_data(struct event_stream *e, enum line_state next)
{
    if (e->has_data)
        e->data(e, SLICE("\n"));
    e->has_data = true;
    e->state = (unsigned char)next;
}

static void finish_line(struct event_stream *e, char c)
{
    if (e->state == STATE_LINE || e->state == STATE_LINE_LF)
        end_event(e);
    else if (e->state == STATE_NAME && e->matched == data_name.n) /* "data" alone: empty content */
        begin_data(e, STATE_DATA);
    e->matched = 0;
    e->state = c == '\r' ? STATE_LINE_LF : STATE_LINE;
}

static void scan_name(struct event_stream *e, char c)
{
    if (e->matched < data_name.n && c == data_name.p[e->matched]) {
        e->matched++;
        e->state = STATE_NAME;
    } else if (e->matched == data_name.n && c == ':') {
        begin_data(e, STATE_SPACE);
    } else {
        e->state = STATE_OTHER;
    }
}

/* Returns the end of the line that contains `p`. Searches block by block: if all lines end in CR,
 * the next LF is far away. */
static const char *line_end(const char *p, const char *end)
{
    enum { BLOCK = 256 };
    size_t n;

    for (; p < end; p += n) {
        n = end - p < BLOCK ? (size_t)(end - p) : BLOCK;
        const char *lf = memchr(p, '\n', n), *cr = memchr(p, '\r', lf ? (size_t)(lf - p) : n);
        if (cr || lf)
            return cr ? cr : lf;
    }
    return end;
}

/* Reads the rest of a line; only data is of interest. */
static const char *read_rest(struct event_stream *e, const char *p, const char *end)
{
    const char *to = line_end(p, end);

    if (e->state == STATE_SPACE && p < to && *p == ' ')
        p++;
    if (e->state != STATE_OTHER) {
        e->state = STATE_DATA;
        if (p < to)
            e->data(e, (struct slice){p, (size_t)(to - p)});
    }
    return to;
}

void event_stream_read(struct event_stream *e, struct slice bytes)
{
    const char *p = bytes.p, *end = p + bytes.n;

    while (p < end) {
        if (*p == '\n' && e->state == STATE_LINE_LF)
            e->state = STATE_LINE, p++;
        else if (*p == '\n' || *p == '\r')
            finish_line(e, *p++);
        else if (e->state <= STATE_NAME)
            scan_name(e, *p++);
        else
            p = read_rest(e, p, end);
    }
}

void event_stream_end(struct event_stream *e)
{
    end_event(e);
}
