/* usage_reader.h - reads the usage in a response while the response is forwarded.
 *
 * One reader serves all limits of a request: a set of paths contains those of all usages. */
#ifndef WEIR_CONTENT_USAGE_READER_H
#define WEIR_CONTENT_USAGE_READER_H

#include "content/event_stream.h"
#include "content/json_scanner.h"
#include "content/usage.h"

enum usage_type { USAGE_TYPE_NONE, USAGE_TYPE_JSON, USAGE_TYPE_EVENTS };

/* Returns how content with this Content-Type is read: application/json and +json as one document,
 * text/event-stream as a document per event (RFC 9110 section 8.3, RFC 6839 section 3.1). */
enum usage_type usage_type_of(struct slice content_type);

enum usage_result {
    USAGE_READ,      /* the whole content was read, and a usage is in it */
    USAGE_MISSING,   /* the whole content was read, without one */
    USAGE_INVALID,   /* it is not valid, or a number in it is too large */
    USAGE_INCOMPLETE /* it ended early */
};

struct usage_value {
    int64_t value; /* -1: not seen */
    uint32_t order;
};

struct usage_reader {
    struct event_stream events;
    struct json_scanner scanner;
    const struct json_paths *paths;
    enum usage_type type;
    bool invalid, too_large;
    unsigned char bom; /* bytes of a byte order mark that were skipped; 3: content has begun */
    uint32_t order;    /* of the next value */
    /* Per path: the last value in the whole documents, then that in the current one. */
    struct usage_value values[];
};

/* Returns the bytes of a reader for `paths`. */
size_t usage_reader_size(const struct json_paths *paths);
/* Begins in memory of usage_reader_size() bytes. `paths` must outlive the reader. */
void usage_reader_begin(struct usage_reader *reader, const struct json_paths *paths,
                        enum usage_type type, bool objects_in_array);
void usage_reader_read(struct usage_reader *reader, struct slice content);
/* The content has ended; `whole`: as its sender intended. */
enum usage_result usage_reader_end(struct usage_reader *reader, bool whole);

/* Returns the sum of a usage, rounded up; -1: none of its counts was seen, or the sum is larger
 * than JSON_INTEGER_MAX. `reader->paths` contains its paths. May be called at any time. */
int64_t usage_reader_sum(const struct usage_reader *reader, const struct usage *usage);

#endif
