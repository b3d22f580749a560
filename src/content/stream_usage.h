/* stream_usage.h - the usage of a stream of an OpenAI-compatible API, which the API sends only if
 * the request asks for it (`stream_options`): asks for it, and removes the event with it, for
 * clients that did not ask. */
#ifndef WEIR_CONTENT_STREAM_USAGE_H
#define WEIR_CONTENT_STREAM_USAGE_H

#include "base/text.h"

/* The member that is inserted into the request. */
#define STREAM_USAGE_MEMBER SLICE("\"stream_options\":{\"include_usage\":true},")

enum stream_usage {
    STREAM_USAGE_STATED,  /* the request asks for no stream, or for its usage, too */
    STREAM_USAGE_UNASKED, /* it asks for a stream, and says nothing of stream_options */
    STREAM_USAGE_UNSURE   /* it may ask for a stream without usage: it says so, is no valid JSON
                             object, or is one that readers may understand differently */
};

/* Reads the content of a request. STREAM_USAGE_UNASKED: the member may be inserted at `*offset`. */
enum stream_usage stream_usage_of(struct slice content, size_t *offset);

enum { STREAM_USAGE_HELD_MAX = 8 << 10 }; /* bytes of an event; longer ones pass */

/* Removes the event whose data has `choices: []` and an object `usage`. Only an event that may be
 * this one is held until it ends. */
struct stream_usage_filter {
    size_t held;
    bool passes;     /* the rest of the current event passes */
    bool line_start; /* the last byte ended a line */
    bool after_cr;   /* by CR: a LF belongs to it */
    bool removed;    /* the event before this one was removed */
    char event[STREAM_USAGE_HELD_MAX];
};

void stream_usage_filter_begin(struct stream_usage_filter *filter);
/* Reads the next piece of a text/event-stream, and appends to `out` what is to be sent: at most
 * STREAM_USAGE_HELD_MAX bytes more. `last`: the stream ends with it. */
void stream_usage_filter_read(struct stream_usage_filter *filter, struct slice piece, bool last,
                              struct text *out);

#endif
