#include "base/json_writer.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"

enum { GROWN_MIN = 1024 };

void json_grow(struct json_writer *json, size_t n)
{
    struct text *out = json->out;
    size_t cap = 2 * out->cap + n + GROWN_MIN;
    char *p;

    if (out->failed || n <= out->cap - out->n)
        return;
    if (!(p = realloc(out->p, cap))) {
        out->failed = true;
        out->cap = out->n;
        return;
    }
    out->p = p;
    out->cap = cap;
}

void json_put_key(struct json_writer *json, struct slice key)
{
    json_put_slice(json, NULL, key);
    json_room(json, 1);
    text_char(json->out, ':');
    json->comma = false;
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

void json_print(struct text *json)
{
    if (json->failed)
        memory_exhausted();
    fwrite(json->p, 1, json->n, stdout);
    putchar('\n');
    free(json->p);
}
