/* json_writer.h - writes JSON (RFC 8259) as text. Commas are placed by the writer.
 *
 *     struct json_writer json = json_writer_over(&text);
 *     json_begin(&json, NULL, '{');
 *     json_put_u64(&json, "requests", 3);     {"requests":3,
 *     json_begin(&json, "names", '[');        "names":[
 *     json_put_text(&json, NULL, name);       "..."
 *     json_end(&json, ']');                   ]
 *     json_end(&json, '}');                   }
 *
 * `key` is NULL for the items of a list, and after json_put_key(). It is written unchanged: a word
 * of the source, not of a client or a policy. */
#ifndef WEIR_BASE_JSON_WRITER_H
#define WEIR_BASE_JSON_WRITER_H

#include "base/text.h"

enum { NUMBER_TEXT_MAX = 20 };

struct json_writer {
    struct text *out; /* its `failed` is set if the document does not fit */
    bool comma;       /* before the next member or item */
    bool grows; /* out->p is from malloc(3), and is replaced by a larger one when it is full */
};

static inline struct json_writer json_writer_over(struct text *out)
{
    return (struct json_writer){.out = out};
}

/* Writes to an empty text without memory. It fails only if memory runs out. The caller frees its
 * `p`. Not for the hot path. */
static inline struct json_writer json_writer_growing(struct text *out)
{
    *out = (struct text){0};
    return (struct json_writer){.out = out, .grows = true};
}

/* Prints a document of json_writer_growing() and a newline to standard output, and frees it. Ends
 * the process if memory has run out. */
void json_print(struct text *json);

/* Makes room for `n` bytes in a growing text. */
void json_grow(struct json_writer *json, size_t n);

static inline void json_room(struct json_writer *json, size_t n)
{
    if (json->grows)
        json_grow(json, n);
}

/* Writes what stands before a value, and `first`, the value's first character, unless it is 0.
 * Inline, as most keys are constants and access lines have twenty. */
static inline void json_before(struct json_writer *json, const char *key, char first)
{
    struct text *out = json->out;
    size_t n = key ? strlen(key) : 0;

    json_room(json, n + sizeof ",\"\":\"");
    if (!text_has_room(out, n + sizeof ",\"\":\""))
        return;
    char *p = out->p + out->n;
    if (json->comma)
        *p++ = ',';
    json->comma = true;
    if (key) {
        *p++ = '"';
        memcpy(p, key, n);
        p += n;
        *p++ = '"';
        *p++ = ':';
    }
    if (first)
        *p++ = first;
    out->n = (size_t)(p - out->p);
}

/* Begin and end an object ('{', '}') or a list ('[', ']'). */
static inline void json_begin(struct json_writer *json, const char *key, char bracket)
{
    json_before(json, key, bracket);
    json->comma = false;
}

static inline void json_end(struct json_writer *json, char bracket)
{
    json_room(json, 1);
    text_char(json->out, bracket);
    json->comma = true;
}

/* Begin and end a string whose pieces the caller writes to `json->out`: by text_json(), or
 * otherwise if nothing in them needs an escape. */
static inline void json_begin_string(struct json_writer *json, const char *key)
{
    json_before(json, key, '"');
}

static inline void json_end_string(struct json_writer *json)
{
    json_room(json, 1);
    text_char(json->out, '"');
}

/* Bytes that are not UTF-8 are written as by text_json(). */
static inline void json_put_slice(struct json_writer *json, const char *key, struct slice text)
{
    json_before(json, key, '"');
    json_room(json, 6 * text.n + 1); /* every byte as \u00XX */
    text_json(json->out, text);
    text_char(json->out, '"');
}

/* Writes `text` unchanged: a value that is JSON already. */
static inline void json_put_verbatim(struct json_writer *json, const char *key, struct slice text)
{
    json_before(json, key, 0);
    json_room(json, text.n);
    text_put(json->out, text);
}

static inline void json_put_u64(struct json_writer *json, const char *key, uint64_t value)
{
    json_before(json, key, 0);
    json_room(json, NUMBER_TEXT_MAX);
    text_u64(json->out, value);
}

static inline void json_put_i64(struct json_writer *json, const char *key, int64_t value)
{
    json_before(json, key, 0);
    json_room(json, NUMBER_TEXT_MAX);
    text_i64(json->out, value);
}

static inline void json_put_null(struct json_writer *json, const char *key)
{
    json_put_verbatim(json, key, SLICE("null"));
}

static inline void json_put_bool(struct json_writer *json, const char *key, bool value)
{
    json_put_verbatim(json, key, value ? SLICE("true") : SLICE("false"));
}

/* A NULL text is null. */
static inline void json_put_text(struct json_writer *json, const char *key, const char *text)
{
    if (text)
        json_put_slice(json, key, slice_of(text));
    else
        json_put_null(json, key);
}

/* Writes up to six decimal places. */
void json_put_number(struct json_writer *json, const char *key, double value);
/* Writes microseconds as seconds. */
void json_put_seconds(struct json_writer *json, const char *key, int64_t us);
/* Writes a key that is not a word of the source. The value follows, with `key` NULL. */
void json_put_key(struct json_writer *json, struct slice key);

#endif
