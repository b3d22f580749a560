#include "replay/log_json.h"

enum { DEPTH_MAX = 32 };

struct cursor {
    char *p, *end;
};

static void skip_space(struct cursor *c)
{
    while (c->p < c->end && (*c->p == ' ' || *c->p == '\t' || *c->p == '\n' || *c->p == '\r'))
        c->p++;
}

static bool take(struct cursor *c, char wanted)
{
    skip_space(c);
    if (c->p == c->end || *c->p != wanted)
        return false;
    c->p++;
    return true;
}

static bool take_hex4(struct cursor *c, unsigned *value)
{
    *value = 0;
    if (c->end - c->p < 4)
        return false;
    for (int i = 0; i < 4; i++) {
        char digit = ascii_lower(*c->p++);
        if (!((digit >= '0' && digit <= '9') || (digit >= 'a' && digit <= 'f')))
            return false;
        *value = *value * 16 + (unsigned)(digit <= '9' ? digit - '0' : digit - 'a' + 10);
    }
    return true;
}

/* Writes UTF-8. An escape of six bytes becomes at most three, so there is always room. */
static char *put_utf8(char *out, unsigned code)
{
    if (code < 0x80) {
        *out++ = (char)code;
    } else if (code < 0x800) {
        *out++ = (char)(0xC0 | code >> 6);
        *out++ = (char)(0x80 | (code & 0x3F));
    } else if (code < 0x10000) {
        *out++ = (char)(0xE0 | code >> 12);
        *out++ = (char)(0x80 | (code >> 6 & 0x3F));
        *out++ = (char)(0x80 | (code & 0x3F));
    } else {
        *out++ = (char)(0xF0 | code >> 18);
        *out++ = (char)(0x80 | (code >> 12 & 0x3F));
        *out++ = (char)(0x80 | (code >> 6 & 0x3F));
        *out++ = (char)(0x80 | (code & 0x3F));
    }
    return out;
}

/* After "\u". A surrogate without its pair becomes U+FFFD. */
static bool take_unicode(struct cursor *c, char **out)
{
    unsigned code, low;

    if (!take_hex4(c, &code))
        return false;
    if (code >= 0xD800 && code < 0xDC00 && c->end - c->p >= 6 && c->p[0] == '\\' &&
        c->p[1] == 'u') {
        struct cursor ahead = {c->p + 2, c->end};
        if (take_hex4(&ahead, &low) && low >= 0xDC00 && low < 0xE000) {
            code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
            *c = ahead;
        }
    }
    *out = put_utf8(*out, code >= 0xD800 && code < 0xE000 ? 0xFFFD : code);
    return true;
}

static bool take_escape(struct cursor *c, char **out)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";

    if (c->p == c->end)
        return false;
    char letter = *c->p++;
    const char *found = strchr(from, letter);
    if (letter == 'u')
        return take_unicode(c, out);
    if (!letter || !found)
        return false;
    *(*out)++ = to[found - from];
    return true;
}

/* Decodes a string in place. */
static bool take_string(struct cursor *c, struct slice *value)
{
    char *out;

    if (!take(c, '"'))
        return false;
    value->p = out = c->p;
    while (c->p < c->end && *c->p != '"') {
        char byte = *c->p++;
        if (byte != '\\')
            *out++ = byte;
        else if (!take_escape(c, &out))
            return false;
    }
    value->n = (size_t)(out - value->p);
    return take(c, '"');
}

/* Skips a number, true, false, null, an array or an object. */
static bool skip_value(struct cursor *c)
{
    struct slice ignored;
    char *start = c->p;

    for (unsigned depth = 0; c->p < c->end; c->p++) {
        if (*c->p == '"') {
            if (!take_string(c, &ignored))
                return false;
            c->p--;
        } else if (*c->p == '{' || *c->p == '[') {
            if (++depth > DEPTH_MAX)
                return false;
        } else if (depth == 0 && (*c->p == ',' || *c->p == '}')) {
            return c->p > start;
        } else if (*c->p == '}' || *c->p == ']') {
            if (depth-- == 0)
                return false;
        }
    }
    return false;
}

bool log_json_parse(char *bytes, size_t size,
                    void (*member)(void *context, struct slice name, struct slice value),
                    void *context)
{
    struct cursor c = {bytes, bytes + size};
    struct slice name, value;

    if (!take(&c, '{'))
        return false;
    if (take(&c, '}'))
        return true;
    do {
        if (!take_string(&c, &name) || !take(&c, ':'))
            return false;
        skip_space(&c);
        if (c.p < c.end && *c.p == '"') {
            if (!take_string(&c, &value))
                return false;
        } else {
            value.p = c.p;
            if (!skip_value(&c))
                return false;
            value.n = (size_t)(c.p - value.p);
        }
        member(context, name, value);
    } while (take(&c, ','));
    if (!take(&c, '}'))
        return false;
    skip_space(&c);
    return c.p == c.end;
}
