#include "http/readings.h"

#include "http/chars.h"
#include "http/path.h"

static bool is_slash(int octet)
{
    return octet == '/' || octet == '\\';
}

/* Invalid codes are kept: the first decoding may produce a "%" that a second one decodes. */
static void decode_codes(struct slice in, struct text *out, bool slashes)
{
    const char *end = in.p + in.n;
    for (const char *p = in.p; p < end;) {
        int octet = percent_code_at(p, end);
        bool taken = octet >= 0 && is_slash(octet) == slashes;
        text_char(out, taken ? (char)octet : *p);
        p += taken ? 3 : 1;
    }
}

static void decode_slashes(struct slice in, struct text *out)
{
    decode_codes(in, out, true);
}

static void decode_others(struct slice in, struct text *out)
{
    decode_codes(in, out, false);
}

static void turn_backslashes(struct slice in, struct text *out)
{
    for (size_t i = 0; i < in.n; i++)
        text_char(out, in.p[i] == '\\' ? '/' : in.p[i]);
}

static void merge_slashes(struct slice in, struct text *out)
{
    for (size_t i = 0; i < in.n; i++)
        if (in.p[i] != '/' || i == 0 || in.p[i - 1] != '/')
            text_char(out, in.p[i]);
}

static void remove_parameters(struct slice in, struct text *out)
{
    bool inside = false;
    for (size_t i = 0; i < in.n; i++) {
        inside = in.p[i] != '/' && (inside || in.p[i] == ';');
        if (!inside)
            text_char(out, in.p[i]);
    }
}

static void resolve_dots(struct slice in, struct text *out)
{
    if (!path_remove_dot_segments(in, out)) /* no space: out->failed */
        return;
}

static bool ends_path(char c)
{
    return c == '?' || c == '#' || c == '\0' || c == '\r' || c == '\n';
}

static void cut_at_end(struct slice in, struct text *out)
{
    size_t n = 0;
    while (n < in.n && !ends_path(in.p[n]))
        n++;
    text_bytes(out, in.p, n);
}

/* All leading slashes are part of the authority ("special authority ignore slashes state" of the
 * WHATWG URL Standard). */
static void remove_authority(struct slice in, struct text *out)
{
    size_t n = 0;
    if (in.n >= 2 && in.p[1] == '/') {
        while (n < in.n && in.p[n] == '/')
            n++;
        while (n < in.n && in.p[n] != '/')
            n++;
        if (n == in.n)
            text_char(out, '/');
    }
    text_bytes(out, in.p + n, in.n - n);
}

static void remove_controls(struct slice in, struct text *out)
{
    for (size_t i = 0; i < in.n; i++)
        if ((unsigned char)in.p[i] >= ' ' && in.p[i] != 0x7f)
            text_char(out, in.p[i]);
}

/* If a segment is only dots and spaces, "." or ".." before the first space is kept. No server reads
 * three dots as "..": Windows removes them. */
static void trim_segments(struct slice in, struct text *out)
{
    for (size_t i = 0, n; i < in.n; i += n) {
        size_t dots = 0, kept;
        for (n = 1; i + n < in.n && in.p[i + n] != '/';)
            n++;
        while (1 + dots < n && in.p[i + 1 + dots] == '.')
            dots++;
        for (kept = n; kept > 1 && (in.p[i + kept - 1] == '.' || in.p[i + kept - 1] == ' ');)
            kept--;
        text_bytes(out, in.p + i, kept == 1 && dots <= 2 ? 1 + dots : kept);
    }
}

/* Decodes one overlong UTF-8 sequence or fullwidth form. Returns the ASCII character it represents
 * and sets `*n` to its length in bytes; `*n` is 0 if there is none. */
static char ascii_of_overlong(const unsigned char *p, size_t left, size_t *n)
{
    unsigned value = 0;
    *n = 0;
    if (left >= 2 && (p[0] == 0xc0 || p[0] == 0xc1) && (p[1] & 0xc0) == 0x80) {
        *n = 2;
        value = (p[0] & 1u) << 6 | (p[1] & 63u);
    } else if (left >= 3 && p[0] == 0xe0 && (p[1] == 0x80 || p[1] == 0x81) &&
               (p[2] & 0xc0) == 0x80) {
        *n = 3;
        value = (p[1] & 1u) << 6 | (p[2] & 63u);
    } else if (left >= 4 && p[0] == 0xf0 && p[1] == 0x80 && (p[2] == 0x80 || p[2] == 0x81) &&
               (p[3] & 0xc0) == 0x80) {
        *n = 4;
        value = (p[2] & 1u) << 6 | (p[3] & 63u);
    } else if (left >= 3 && p[0] == 0xef &&
               ((p[1] == 0xbc && p[2] >= 0x81 && p[2] <= 0xbf) ||
                (p[1] == 0xbd && p[2] >= 0x80 && p[2] <= 0x9e))) {
        *n = 3; /* U+FF01 to U+FF5E */
        value = ((p[1] & 1u) << 6 | (p[2] & 63u)) + 0x20;
    }
    return (char)value;
}

static void fold_characters(struct slice in, struct text *out)
{
    for (size_t i = 0, n; i < in.n; i += n) {
        char c = ascii_of_overlong((const unsigned char *)in.p + i, in.n - i, &n);
        text_char(out, n ? c : in.p[i]);
        n += n == 0;
    }
}

/* The contents of a path. They determine which steps can change it. */
enum {
    HAS_CODE = 1,
    HAS_BACKSLASH = 2,
    HAS_DOUBLE_SLASH = 4,
    HAS_SEMICOLON = 8,
    HAS_DOT = 16, /* at the start of a segment; "%2e" is covered by HAS_CODE */
    HAS_END = 32, /* "?", "#", NUL, CR, LF */
    HAS_CONTROL = 64,
    HAS_TAIL = 128, /* a dot or space at the end of a segment */
    HAS_HIGH = 256
};

static const struct {
    void (*write)(struct slice in, struct text *out);
    unsigned when;
} steps[] = {
    {decode_slashes, HAS_CODE},
    {decode_others, HAS_CODE},
    {turn_backslashes, HAS_BACKSLASH},
    {merge_slashes, HAS_DOUBLE_SLASH},
    {remove_parameters, HAS_SEMICOLON},
    {resolve_dots, HAS_DOT | HAS_CODE},
    {cut_at_end, HAS_END},
    {remove_authority, HAS_DOUBLE_SLASH},
    {remove_controls, HAS_CONTROL},
    {trim_segments, HAS_TAIL},
    {fold_characters, HAS_HIGH},
};

static unsigned contents_of(struct slice path)
{
    unsigned has = 0;
    for (size_t i = 0; i < path.n; i++) {
        char c = path.p[i], before = i ? path.p[i - 1] : '\0';
        bool last = i + 1 == path.n || path.p[i + 1] == '/';
        switch (c) {
        case '%': has |= HAS_CODE; break;
        case '\\': has |= HAS_BACKSLASH; break;
        case '/': has |= before == '/' ? HAS_DOUBLE_SLASH : 0; break;
        case ';': has |= HAS_SEMICOLON; break;
        case '.': has |= (before == '/' ? HAS_DOT : 0) | (last ? HAS_TAIL : 0); break;
        case ' ': has |= last ? HAS_TAIL : 0; break;
        case '\0':
        case '\r':
        case '\n': has |= HAS_CONTROL | HAS_END; break;
        case '?':
        case '#': has |= HAS_END; break;
        default:
            has |= (unsigned char)c > 0x7f               ? HAS_HIGH
                   : (unsigned char)c < ' ' || c == 0x7f ? HAS_CONTROL
                                                         : 0;
        }
    }
    return has;
}

void readings_begin(struct readings *readings, struct slice normal)
{
    size_t room = READINGS_BASE + 3 * normal.n;
    readings->count = 1;
    readings->next = readings->expanded = 0;
    readings->too_many = false;
    readings->at[0] = normal;
    readings->room = text_over(readings->bytes, room < READINGS_ROOM ? room : READINGS_ROOM);
}

static bool was_seen(const struct readings *readings, struct slice reading)
{
    for (unsigned i = 0; i < readings->count; i++)
        if (slice_equal(readings->at[i], reading))
            return true;
    return false;
}

/* Adds the result of each step on one reading. */
static void expand(struct readings *readings, struct slice reading)
{
    unsigned has = contents_of(reading);

    for (size_t i = 0; i < COUNT_OF(steps) && !readings->too_many; i++) {
        size_t start = readings->room.n;
        if (!(steps[i].when & has))
            continue;
        steps[i].write(reading, &readings->room);
        struct slice made = {readings->bytes + start, readings->room.n - start};
        if (!readings->room.failed && was_seen(readings, made))
            readings->room.n = start;
        else if (readings->room.failed || readings->count == READINGS_MAX)
            readings->too_many = true;
        else
            readings->at[readings->count++] = made;
    }
}

bool readings_next(struct readings *readings, struct slice *reading)
{
    while (readings->next == readings->count && readings->expanded < readings->count &&
           !readings->too_many)
        expand(readings, readings->at[readings->expanded++]);
    if (readings->too_many || readings->next == readings->count)
        return false;
    *reading = readings->at[readings->next++];
    return true;
}
