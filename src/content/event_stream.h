/* event_stream.h - splits text/event-stream (HTML Living Standard, section 9.2) into the data of
 * its events, while it passes. Keeps no content. */
#ifndef WEIR_CONTENT_EVENT_STREAM_H
#define WEIR_CONTENT_EVENT_STREAM_H

#include "base/slice.h"

struct event_stream {
    /* A part of an event's data; the lines of one event are joined by "\n". */
    void (*data)(struct event_stream *stream, struct slice part);
    /* The event has ended. Called for events with data only. */
    void (*end)(struct event_stream *stream);

    /* Private. */
    unsigned char state;
    unsigned char matched; /* bytes of "data" that the field name has matched */
    bool has_data;         /* the event has a data line */
};

/* Begins with `data` and `end` set. */
void event_stream_begin(struct event_stream *stream);
void event_stream_read(struct event_stream *stream, struct slice bytes);
/* The stream has ended. An event without its empty line counts. */
void event_stream_end(struct event_stream *stream);

#endif
