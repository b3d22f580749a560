#include "base/json_tree.h"

#include <stdlib.h>
#include <string.h>

struct reader {
    struct arena *arena;
    const char *p, *end;
    unsigned depth;
};

static struct json_node *read_value(struct reader *r);

static void skip_space(struct reader *r)
{
    while (r->p < r->end && (*r->p == ' ' || *r->p == '\t' || *r->p == '\r' || *r->p == '\n'))
        r->p++;
}

static bool take(struct reader *r, char c)
{
    skip_space(r);
    if (r->p == r->end || *r->p != c)
        return false;
    r->p++;
    return true;
}

/* --- Strings ---------------------------------------------------------------------------------- */

static bool read_hex(struct reader *r, uint32_t *value)
{
    *value = 0;
    for (unsigned i = 0; i < 4; i++, r->p++) {
        char c = r->p < r->end ? *r->p : 0;
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0)
            return false;
        *value = *value << 4 | (uint32_t)digit;
    }
    return true;
}

static char *put_utf8(char *out, uint32_t c)
{
    if (c < 0x80)
        *out++ = (char)c;
    else if (c < 0x800) {
        *out++ = (char)(0xc0 | c >> 6);
        *out++ = (char)(0x80 | (c & 0x3f));
    } else if (c < 0x10000) {
        *out++ = (char)(0xe0 | c >> 12);
        *out++ = (char)(0x80 | (c >> 6 & 0x3f));
        *out++ = (char)(0x80 | (c & 0x3f));
    } else {
        *out++ = (char)(0xf0 | c >> 18);
        *out++ = (char)(0x80 | (c >> 12 & 0x3f));
        *out++ = (char)(0x80 | (c >> 6 & 0x3f));
        *out++ = (char)(0x80 | (c & 0x3f));
    }
    return out;
}

/* Reads what follows "\u". NULL: no character. */
static char *read_unicode(struct reader *r, char *out)
{
    uint32_t c, low;

    if (!read_hex(r, &c) || c == 0 || (c >= 0xdc00 && c < 0xe000))
        return NULL;
    if (c >= 0xd800 && c < 0xdc00) { /* a surrogate pair, RFC 8259 section 7 */
        if (r->end - r->p < 2 || r->p[0] != '\\' || r->p[1] != 'u')
            return NULL;
        r->p += 2;
        if (!read_hex(r, &low) || low < 0xdc00 || low >= 0xe000)
            return NULL;
        c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
    }
    return put_utf8(out, c);
}

static char *read_escape(struct reader *r, char *out)
{
    static const char names[] = "\"\\/bfnrt", bytes[] = "\"\\/\b\f\n\r\t";
    char c = r->p < r->end ? *r->p++ : 0;
    const char *name = c ? strchr(names, c) : NULL;

    if (c == 'u')
        return read_unicode(r, out);
    if (!name)
        return NULL;
    *out++ = bytes[name - names];
    return out;
}

/* An escape is never shorter than the bytes that it stands for. */
static bool read_string(struct reader *r, struct slice *text)
{
    const char *quote;

    if (!take(r, '"'))
        return false;
    for (quote = r->p; quote < r->end && *quote != '"'; quote++)
        quote += *quote == '\\' && quote + 1 < r->end;
    if (quote == r->end)
        return false;
    char *out = arena_zeroed(r->arena, (size_t)(quote - r->p) + 1, 1), *at = out;
    while (r->p < quote && at) {
        char c = *r->p++;
        if ((unsigned char)c < 0x20)
            return false;
        if (c == '\\')
            at = read_escape(r, at);
        else
            *at++ = c;
    }
    *text = (struct slice){out, at ? (size_t)(at - out) : 0};
    return at && take(r, '"');
}

/* --- Values ----------------------------------------------------------------------------------- */

static bool read_digits(struct reader *r)
{
    const char *from = r->p;
    while (r->p < r->end && *r->p >= '0' && *r->p <= '9')
        r->p++;
    return r->p > from;
}

/* RFC 8259 section 6. */
static bool read_number(struct reader *r, struct slice *text)
{
    const char *from = r->p;
    bool good;

    r->p += r->p < r->end && *r->p == '-';
    if (r->p < r->end && *r->p == '0')
        good = *r->p++ != 0;
    else
        good = read_digits(r);
    if (good && r->p < r->end && *r->p == '.') {
        r->p++;
        good = read_digits(r);
    }
    if (good && r->p < r->end && (*r->p == 'e' || *r->p == 'E')) {
        r->p++;
        r->p += r->p < r->end && (*r->p == '+' || *r->p == '-');
        good = read_digits(r);
    }
    *text = slice_of(arena_text(r->arena, (struct slice){from, (size_t)(r->p - from)}));
    return good;
}

static bool read_word(struct reader *r, const char *word)
{
    size_t n = strlen(word);

    if ((size_t)(r->end - r->p) < n || memcmp(r->p, word, n) != 0)
        return false;
    r->p += n;
    return true;
}

/* Reads the members or items after the opening bracket. */
static bool read_children(struct reader *r, struct json_node *node, char close)
{
    struct json_node **last = &node->first;

    if (take(r, close))
        return true;
    do {
        struct slice key = SLICE_NONE;
        if (node->kind == JSON_OBJECT && (!read_string(r, &key) || !take(r, ':')))
            return false;
        struct json_node *child = read_value(r);
        if (!child)
            return false;
        child->key = key;
        *last = child;
        last = &child->next;
    } while (take(r, ','));
    return take(r, close);
}

static bool read_into(struct reader *r, struct json_node *node)
{
    switch (*r->p) {
    case '{':
        r->p++;
        node->kind = JSON_OBJECT;
        return read_children(r, node, '}');
    case '[':
        r->p++;
        node->kind = JSON_LIST;
        return read_children(r, node, ']');
    case '"': node->kind = JSON_STRING; return read_string(r, &node->text);
    case 't':
        node->kind = JSON_BOOL;
        node->value = true;
        return read_word(r, "true");
    case 'f': node->kind = JSON_BOOL; return read_word(r, "false");
    case 'n': return read_word(r, "null");
    default: node->kind = JSON_NUMBER; return read_number(r, &node->text);
    }
}

static struct json_node *read_value(struct reader *r)
{
    struct json_node *node = arena_zeroed(r->arena, 1, sizeof *node);

    skip_space(r);
    if (r->p == r->end || r->depth == JSON_DEPTH_MAX)
        return NULL;
    r->depth++;
    bool good = read_into(r, node);
    r->depth--;
    return good ? node : NULL;
}

const struct json_node *json_read(struct arena *arena, struct slice text)
{
    if (text.n == 0)
        return NULL;
    struct reader r = {arena, text.p, text.p + text.n, 0};
    const struct json_node *node = read_value(&r);

    skip_space(&r);
    return r.p == r.end ? node : NULL;
}

/* --- Access ----------------------------------------------------------------------------------- */

static const struct json_node *member(const struct json_node *node, struct slice key)
{
    if (!node || node->kind != JSON_OBJECT)
        return NULL;
    for (node = node->first; node && !slice_equal(node->key, key);)
        node = node->next;
    return node;
}

const struct json_node *json_member(const struct json_node *node, const char *key)
{
    return member(node, slice_of(key));
}

const struct json_node *json_at(const struct json_node *node, const char *path)
{
    for (;;) {
        size_t n = strcspn(path, ".");
        node = member(node, (struct slice){path, n});
        if (!path[n])
            return node;
        path += n + 1;
    }
}

double json_double(const struct json_node *node, double otherwise)
{
    return node && node->kind == JSON_NUMBER ? strtod(node->text.p, NULL) : otherwise;
}

struct slice json_string(const struct json_node *node)
{
    return node && node->kind == JSON_STRING ? node->text : SLICE("");
}
