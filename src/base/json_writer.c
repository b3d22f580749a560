#include "base/json_writer.h"

#include "base/text.h"

/* Appends a string in quotes. */
static void put_string(struct evbuffer *out, struct slice text)
{
    struct evbuffer_iovec room;
    size_t most = 6 * text.n + 2; /* every byte as \u00XX */

    if (evbuffer_reserve_space(out, (ev_ssize_t)most, &room, 1) != 1)
        return;
    struct text t = text_over(room.iov_base, most);
    text_char(&t, '"');
    text_json(&t, text);
    text_char(&t, '"');
    room.iov_len = t.n;
    evbuffer_commit_space(out, &room, 1);
}

/* Writes what stands before a value. */
static void before(struct json_writer *json, const char *key)
{
    if (json->comma)
        evbuffer_add(json->out, ",", 1);
    json->comma = true;
    if (!key)
        return;
    put_string(json->out, slice_of(key));
    evbuffer_add(json->out, ":", 1);
}

void json_begin(struct json_writer *json, const char *key, char bracket)
{
    before(json, key);
    evbuffer_add(json->out, &bracket, 1);
    json->comma = false;
}

void json_end(struct json_writer *json, char bracket)
{
    evbuffer_add(json->out, &bracket, 1);
    json->comma = true;
}

void json_put_verbatim(struct json_writer *json, const char *key, struct slice text)
{
    before(json, key);
    evbuffer_add(json->out, text.p, text.n);
}

void json_put_null(struct json_writer *json, const char *key)
{
    json_put_verbatim(json, key, SLICE("null"));
}

void json_put_bool(struct json_writer *json, const char *key, bool value)
{
    json_put_verbatim(json, key, value ? SLICE("true") : SLICE("false"));
}

void json_put_u64(struct json_writer *json, const char *key, uint64_t value)
{
    char bytes[24];
    struct text t = text_over(bytes, sizeof bytes);

    text_u64(&t, value);
    json_put_verbatim(json, key, text_slice(&t));
}

void json_put_i64(struct json_writer *json, const char *key, int64_t value)
{
    char bytes[24];
    struct text t = text_over(bytes, sizeof bytes);

    text_i64(&t, value);
    json_put_verbatim(json, key, text_slice(&t));
}

void json_put_number(struct json_writer *json, const char *key, double value)
{
    char bytes[400];
    struct text t = text_over(bytes, sizeof bytes);

    text_printf(&t, "%.6f", value);
    while (t.n > 1 && bytes[t.n - 1] == '0')
        t.n--;
    if (bytes[t.n - 1] == '.')
        t.n--;
    json_put_verbatim(json, key, text_slice(&t));
}

void json_put_seconds(struct json_writer *json, const char *key, int64_t us)
{
    json_put_number(json, key, (double)us / 1e6);
}

void json_put_slice(struct json_writer *json, const char *key, struct slice text)
{
    before(json, key);
    put_string(json->out, text);
}

void json_put_text(struct json_writer *json, const char *key, const char *text)
{
    if (text)
        json_put_slice(json, key, slice_of(text));
    else
        json_put_null(json, key);
}
