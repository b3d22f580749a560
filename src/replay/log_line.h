/* log_line.h - parses one line of an access log. Four forms are recognised:
 *
 *   common    ADDRESS IDENT USER [10/Oct/2000:13:55:36 -0700] "GET /x HTTP/1.1" 200 2326
 *   combined  the same, followed by "REFERER" "USER AGENT"; also weir's `log.access: combined`
 *   vhost     "HOST:PORT " before it (Apache's vhost_combined)
 *   JSON      weir's `log.access: json`, or nginx's with the names of its variables, one object per
 *             line
 *
 * Parses only; opens no files. Bytes after the status are ignored. */
#ifndef WEIR_REPLAY_LOG_LINE_H
#define WEIR_REPLAY_LOG_LINE_H

#include "base/slice.h"

enum { REPLAY_LINE_MAX = 64 * 1024 }; /* bytes; longer lines are odd */

enum log_line_kind {
    LOG_LINE_REQUEST,
    LOG_LINE_OTHER, /* empty, a comment, an event of weir, or a JSON object of no request */
    LOG_LINE_ODD    /* neither: cannot be parsed */
};

/* The slices point into the parsed line. */
struct log_line {
    int64_t time_us; /* Unix time in microseconds */
    struct slice
        address; /* address of the client or, if that is not logged, of the peer; or empty */
    struct slice client; /* identity as weir logs it, "id:alice" or "ip:203.0.113.7"; or empty */
    struct slice user;   /* user of a common or combined line that is no identity; or empty */
    struct slice method, target;
    struct slice host; /* empty: not logged */
    unsigned status;   /* of the response; 0: not logged */
    uint64_t left_out; /* lines of rejections that weir has left out before it (log.sample) */
};

/* Parses `size` bytes without the line end. Escapes are decoded in place, so `bytes` changes. */
enum log_line_kind log_line_parse(char *bytes, size_t size, struct log_line *line);

/* Parses "10/Oct/2000:13:55:36 -0700" or "2000-10-10T20:55:36.123Z" into Unix time in
 * microseconds. Returns false if the text is not a valid time. */
MUST_CHECK bool log_time_parse(struct slice text, int64_t *time_us);

#endif
