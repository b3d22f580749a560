#include "admin/json.h"

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
static void before(struct json *json, const char *key)
{
    if (json->comma)
        evbuffer_add(json->out, ",", 1);
    json->comma = true;
    if (!key)
        return;
    put_string(json->out, slice_of(key));
    evbuffer_add(json->out, ":", 1);
}

void json_begin(struct json *json, const char *key, char bracket)
{
    before(json, key);
    evbuffer_add(json->out, &bracket, 1);
    json->comma = false;
}

void json_end(struct json *json, char bracket)
{
    evbuffer_add(json->out, &bracket, 1);
    json->comma = true;
}

void json_verbatim(struct json *json, const char *key, struct slice text)
{
    before(json, key);
    evbuffer_add(json->out, text.p, text.n);
}

void json_null(struct json *json, const char *key)
{
    json_verbatim(json, key, SLICE("null"));
}

void json_bool(struct json *json, const char *key, bool value)
{
    json_verbatim(json, key, value ? SLICE("true") : SLICE("false"));
}

void json_u64(struct json *json, const char *key, uint64_t value)
{
    char bytes[24];
    struct text t = text_over(bytes, sizeof bytes);

    text_u64(&t, value);
    json_verbatim(json, key, text_slice(&t));
}

void json_i64(struct json *json, const char *key, int64_t value)
{
    char bytes[24];
    struct text t = text_over(bytes, sizeof bytes);

    text_i64(&t, value);
    json_verbatim(json, key, text_slice(&t));
}

void json_number(struct json *json, const char *key, double value)
{
    char bytes[400];
    struct text t = text_over(bytes, sizeof bytes);

    text_printf(&t, "%.6f", value);
    while (t.n > 1 && bytes[t.n - 1] == '0')
        t.n--;
    if (bytes[t.n - 1] == '.')
        t.n--;
    json_verbatim(json, key, text_slice(&t));
}

void json_seconds(struct json *json, const char *key, int64_t us)
{
    json_number(json, key, (double)us / 1e6);
}

void json_slice(struct json *json, const char *key, struct slice text)
{
    before(json, key);
    put_string(json->out, text);
}

void json_text(struct json *json, const char *key, const char *text)
{
    if (text)
        json_slice(json, key, slice_of(text));
    else
        json_null(json, key);
}
