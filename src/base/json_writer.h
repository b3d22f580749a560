/* json_writer.h - writes JSON (RFC 8259) to a buffer. Commas are placed by the writer.
 *
 *     struct json_writer json = json_writer_over(buffer);
 *     json_begin(&json, NULL, '{');
 *     json_put_u64(&json, "requests", 3);        {"requests":3,
 *     json_begin(&json, "names", '[');        "names":[
 *     json_put_text(&json, NULL, name);           "..."
 *     json_end(&json, ']');                   ]
 *     json_end(&json, '}');                  }
 *
 * `key` is NULL for the items of a list. */
#ifndef WEIR_BASE_JSON_WRITER_H
#define WEIR_BASE_JSON_WRITER_H

#include <event2/buffer.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/slice.h"

struct json_writer {
    struct evbuffer *out;
    bool comma; /* before the next member or item */
};

static inline struct json_writer json_writer_over(struct evbuffer *out)
{
    return (struct json_writer){out, false};
}

/* Begins and ends an object ('{', '}') or a list ('[', ']'). */
void json_begin(struct json_writer *json, const char *key, char bracket);
void json_end(struct json_writer *json, char bracket);

void json_put_null(struct json_writer *json, const char *key);
void json_put_bool(struct json_writer *json, const char *key, bool value);
void json_put_u64(struct json_writer *json, const char *key, uint64_t value);
void json_put_i64(struct json_writer *json, const char *key, int64_t value);
/* Writes up to six decimal places. */
void json_put_number(struct json_writer *json, const char *key, double value);
/* Writes microseconds as seconds. */
void json_put_seconds(struct json_writer *json, const char *key, int64_t us);
/* A NULL text is null. Bytes that are not UTF-8 become U+FFFD. */
void json_put_text(struct json_writer *json, const char *key, const char *text);
void json_put_slice(struct json_writer *json, const char *key, struct slice text);
/* Writes `text` unchanged: a value that is JSON already. */
void json_put_verbatim(struct json_writer *json, const char *key, struct slice text);

#endif
