#include "content/stream_usage.h"

#include <jansson.h>

#include "base/macros.h"
#include "content/event_stream.h"
#include "content/json_scanner.h"

/* ---- the request ----------------------------------------------------------------------------- */

enum { PATH_STREAM, PATH_OPTIONS, PATH_INCLUDE_USAGE };

static const struct json_paths request_paths = {
    .count = 3,
    .paths = {[PATH_STREAM] = {.count = 1, .names = {SLICE("stream")}},
              [PATH_OPTIONS] = {.count = 1, .names = {SLICE("stream_options")}},
              [PATH_INCLUDE_USAGE] = {.count = 2,
                                      .names = {SLICE("stream_options"), SLICE("include_usage")}}}};

struct request_reader {
    struct json_scanner scanner;
    bool may_stream, streams, says_options, asks;
};

static void take_stream_option(struct json_scanner *scanner, unsigned path,
                               const struct scanned_value *value)
{
    struct request_reader *reader = CONTAINER_OF(scanner, struct request_reader, scanner);

    if (path == PATH_STREAM) {
        reader->streams = value->kind == SCANNED_TRUE;
        reader->may_stream = value->kind != SCANNED_FALSE && value->kind != SCANNED_NULL;
    } else if (path == PATH_OPTIONS) {
        reader->says_options = true;
    } else {
        reader->asks = value->kind == SCANNED_TRUE;
    }
}

enum stream_usage stream_usage_of(struct slice content, size_t *offset)
{
    struct request_reader reader = {.streams = false};
    const char *open = content.n ? memchr(content.p, '{', content.n) : NULL;

    json_scanner_begin(&reader.scanner, &request_paths, take_stream_option, text_over(NULL, 0));
    (void)json_scanner_read(&reader.scanner, content);
    if (json_scanner_end(&reader.scanner) != JSON_COMPLETE || !reader.scanner.is_object ||
        reader.scanner.ambiguous)
        return STREAM_USAGE_UNSURE;
    if (!reader.may_stream || reader.asks)
        return STREAM_USAGE_STATED;
    if (!reader.streams || reader.says_options)
        return STREAM_USAGE_UNSURE;
    *offset = (size_t)(open - content.p) + 1;
    return STREAM_USAGE_UNASKED;
}

/* ---- the response ---------------------------------------------------------------------------- */

struct event_data {
    struct event_stream stream;
    struct text text;
};

static void add_data(struct event_stream *stream, struct slice part)
{
    text_put(&CONTAINER_OF(stream, struct event_data, stream)->text, part);
}

static void end_data(struct event_stream *stream)
{
    (void)stream;
}

static bool is_usage(struct slice data)
{
    json_t *root = json_loadb(data.p, data.n, JSON_REJECT_DUPLICATES, NULL);
    const json_t *choices = json_object_get(root, "choices");
    bool found = json_is_array(choices) && json_array_size(choices) == 0 &&
                 json_is_object(json_object_get(root, "usage"));

    json_decref(root);
    return found;
}

static bool is_usage_event(struct slice event)
{
    char bytes[STREAM_USAGE_HELD_MAX];
    struct event_data data = {.stream = {.data = add_data, .end = end_data},
                              .text = text_over(bytes, sizeof bytes)};

    event_stream_begin(&data.stream);
    event_stream_read(&data.stream, event);
    event_stream_end(&data.stream);
    return is_usage(text_slice(&data.text));
}

/* Returns the position after white space. */
static const char *skip_space(const char *p, const char *end)
{
    while (p < end && (*p == ' ' || *p == '\t' || *p == '\r' || *p == '\n'))
        p++;
    return p;
}

/* Returns whether `choices` in the text is, or may become, an empty array. Most events have another
 * beginning, by which they are known at once. */
static bool may_be_usage(struct slice event)
{
    static const struct slice name = {"\"choices\"", 9};
    const char *end = event.p + event.n, *p = memmem(event.p, event.n, name.p, name.n);

    if (!p)
        return true;
    p = skip_space(p + name.n, end);
    if (p < end && *p == ':')
        p = skip_space(p + 1, end);
    if (p < end && *p == '[')
        p = skip_space(p + 1, end);
    return p == end || *p == ']';
}

void stream_usage_filter_begin(struct stream_usage_filter *filter)
{
    filter->held = 0;
    filter->passes = filter->after_cr = filter->removed = false;
    filter->line_start = true;
}

static struct slice held(const struct stream_usage_filter *filter)
{
    return (struct slice){filter->event, filter->held};
}

static void pass_held(struct stream_usage_filter *filter, struct text *out)
{
    text_put(out, held(filter));
    filter->held = 0;
    filter->passes = true;
}

/* Holds the bytes or, where the event is too long, lets it pass. */
static void hold_bytes(struct stream_usage_filter *filter, struct slice bytes, struct text *out)
{
    if (!filter->passes && filter->held + bytes.n > sizeof filter->event)
        pass_held(filter, out);
    if (filter->passes) {
        text_put(out, bytes);
        return;
    }
    memcpy(filter->event + filter->held, bytes.p, bytes.n);
    filter->held += bytes.n;
}

/* The event has ended. */
static void end_event(struct stream_usage_filter *filter, struct text *out)
{
    filter->removed = !filter->passes && may_be_usage(held(filter)) && is_usage_event(held(filter));
    if (!filter->passes && !filter->removed)
        pass_held(filter, out);
    filter->held = 0;
    filter->passes = false;
}

/* Returns the bytes of `p` that belong to the current event; `*ended`: it ends there, perhaps with
 * a CR whose LF follows. */
static size_t event_part(struct stream_usage_filter *filter, const char *p, const char *end,
                         bool *ended)
{
    const char *at = p;

    *ended = false;
    while (at < end && !*ended) {
        char c = *at++;
        bool lf_of_cr = c == '\n' && filter->after_cr;
        filter->after_cr = c == '\r';
        if (lf_of_cr)
            continue;
        bool line_ends = c == '\n' || c == '\r';
        *ended = line_ends && filter->line_start;
        filter->line_start = line_ends;
    }
    return (size_t)(at - p);
}

/* Returns true if `c` is the LF of a CR that has ended the event before. */
static bool ends_event_before(struct stream_usage_filter *filter, char c)
{
    bool is_lf = c == '\n' && filter->after_cr && !filter->held && !filter->passes;

    filter->after_cr &= !is_lf;
    return is_lf;
}

void stream_usage_filter_read(struct stream_usage_filter *filter, struct slice piece, bool last,
                              struct text *out)
{
    const char *p = piece.p, *end = piece.n ? p + piece.n : p; /* p may be NULL */
    bool ended;

    while (p < end) {
        if (ends_event_before(filter, *p)) {
            text_put(out, (struct slice){p++, filter->removed ? 0 : 1});
            continue;
        }
        size_t size = event_part(filter, p, end, &ended);
        hold_bytes(filter, (struct slice){p, size}, out);
        p += size;
        if (ended)
            end_event(filter, out);
    }
    if (last || (filter->held && !may_be_usage(held(filter))))
        pass_held(filter, out);
}
