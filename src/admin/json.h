/* json.h - writes JSON (RFC 8259) to a buffer. Commas are placed by the writer.
 *
 *     struct json json = json_over(buffer);
 *     json_begin(&json, NULL, '{');
 *     json_u64(&json, "requests", 3);        {"requests":3,
 *     json_begin(&json, "names", '[');        "names":[
 *     json_text(&json, NULL, name);           "..."
 *     json_end(&json, ']');                   ]
 *     json_end(&json, '}');                  }
 *
 * `key` is NULL for the items of a list. */
#ifndef WEIR_ADMIN_JSON_H
#define WEIR_ADMIN_JSON_H

#include <event2/buffer.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/slice.h"

struct json {
    struct evbuffer *out;
    bool comma; /* before the next member or item */
};

static inline struct json json_over(struct evbuffer *out)
{
    return (struct json){out, false};
}

/* Begins and ends an object ('{', '}') or a list ('[', ']'). */
void json_begin(struct json *json, const char *key, char bracket);
void json_end(struct json *json, char bracket);

void json_null(struct json *json, const char *key);
void json_bool(struct json *json, const char *key, bool value);
void json_u64(struct json *json, const char *key, uint64_t value);
void json_i64(struct json *json, const char *key, int64_t value);
/* Writes up to six decimal places. */
void json_number(struct json *json, const char *key, double value);
/* Writes microseconds as seconds. */
void json_seconds(struct json *json, const char *key, int64_t us);
/* A NULL text is null. Bytes that are not UTF-8 become U+FFFD. */
void json_text(struct json *json, const char *key, const char *text);
void json_slice(struct json *json, const char *key, struct slice text);
/* Writes `text` unchanged: a value that is JSON already. */
void json_verbatim(struct json *json, const char *key, struct slice text);

#endif
