/* closed_streams.h - which frames on closed streams are errors (RFC 9113 section 5.1).
 *
 * Frames on a stream that weir has reset may have been under way: they are late. Other frames on
 * closed streams are errors, and so are frames on identifiers that a client has skipped (section
 * 5.1.1). The last resets are stored. If a client's stream may be one of the earlier resets, its
 * frames count as late. */
#ifndef WEIR_HTTP2_CLOSED_STREAMS_H
#define WEIR_HTTP2_CLOSED_STREAMS_H

#include <stdint.h>

enum { RESET_STREAMS_STORED = 8 };

/* Zeroed: no stream was opened. */
struct closed_streams {
    int32_t reset[RESET_STREAMS_STORED]; /* 0: none */
    int32_t forgotten;                   /* the highest reset stream that is not stored any more */
    int32_t newest;
    int32_t skipped_from, skipped_to; /* the last identifiers skipped */
    uint8_t next;                     /* in `reset` */
};

enum closed_kind { CLOSED_LATE, CLOSED_ENDED, CLOSED_SKIPPED };

/* The client sends HEADERS on the stream. */
void closed_streams_opened(struct closed_streams *streams, int32_t id);

/* weir resets the stream. */
void closed_streams_reset(struct closed_streams *streams, int32_t id);

/* Returns what a frame on a stream means that is closed and not higher than the newest one. */
enum closed_kind closed_streams_kind(const struct closed_streams *streams, int32_t id);

#endif
