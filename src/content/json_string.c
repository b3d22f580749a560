/* json_string.c - names and texts: escapes, UTF-8, and names that belong to paths. */
#include "base/scan.h"
#include "content/json_scanner_internal.h"
#include "http/chars.h"

void json_begin_name(struct json_scanner *s)
{
    s->in_name = true;
    s->name_ended = false;
    s->token = 0;
    s->position = 0;
    s->exact = s->folded = json_in_tracked(s) ? s->alive[s->tracked - 1] : 0;
    s->state = STATE_STRING;
}

/* A letter in lower case. Some readers of JSON fold the Kelvin sign, the long s, the dotless i and
 * the capital I with a dot, too. */
static uint32_t fold(uint32_t code)
{
    if (code == 0x212a)
        return 'k';
    if (code == 0x17f)
        return 's';
    if (code == 0x130 || code == 0x131)
        return 'i';
    return code < 0x80 ? (unsigned char)ascii_lower((char)code) : code;
}

/* Removes the paths whose name has another length than what was read. */
static void match_length(struct json_scanner *s)
{
    for (unsigned i = 0; s->folded && i < s->paths->count; i++) {
        if (s->folded >> i & 1 && s->paths->paths[i].names[s->tracked - 1].n != s->position)
            s->folded &= ~(UINT32_C(1) << i);
    }
}

/* Compares one more code point of a name with the names of the paths. */
static void match_name(struct json_scanner *s, uint32_t code)
{
    if (code == 0 && !s->name_ended) {
        s->name_ended = true;
        s->exact = 0;
        match_length(s);
    }
    if (s->name_ended)
        return;
    uint32_t folded = fold(code);

    for (uint32_t left = s->folded; left; left &= left - 1) {
        uint32_t bit = left & -left;
        struct slice name = s->paths->paths[__builtin_ctz(left)].names[s->tracked - 1];
        if (s->position >= name.n || fold((unsigned char)name.p[s->position]) != folded)
            s->folded &= ~bit;
        if (s->position >= name.n || (unsigned char)name.p[s->position] != code)
            s->exact &= ~bit;
    }
    s->position++;
}

static void end_name(struct json_scanner *s)
{
    s->in_name = false;
    s->state = STATE_COLON;
    match_length(s);
    s->pending = s->exact & s->folded;
    if (!s->folded)
        return;
    uint32_t *seen = &s->seen[s->tracked - 1];
    s->ambiguous |= s->folded & (*seen | ~s->pending);
    *seen |= s->folded;
}

static void end_string(struct json_scanner *s)
{
    if (s->in_name) {
        end_name(s);
        return;
    }
    if (s->wanted)
        json_report(s, (struct scanned_value){.kind = SCANNED_TEXT});
    json_end_value(s);
}

static void put_utf8(struct json_scanner *s, uint32_t code)
{
    char bytes[4];
    struct text out = text_over(bytes, sizeof bytes);

    if (code >= 0x10000)
        text_char(&out, (char)(0xf0 | code >> 18));
    if (code >= 0x800)
        text_char(&out, (char)((code >= 0x10000 ? 0x80 : 0xe0) | (code >> 12 & 0x3f)));
    if (code >= 0x80)
        text_char(&out, (char)((code >= 0x800 ? 0x80 : 0xc0) | (code >> 6 & 0x3f)));
    text_char(&out, (char)(code >= 0x80 ? 0x80 | (code & 0x3f) : code));
    json_keep(s, text_slice(&out));
}

/* A code point of the string was read. */
static void put_code(struct json_scanner *s, uint32_t code)
{
    s->state = STATE_STRING;
    if (s->in_name && s->folded)
        match_name(s, code);
    else if (s->wanted)
        put_utf8(s, code);
}

void json_after_escape(struct json_scanner *s, char c)
{
    static const char names[] = "\"\\/bfnrt", codes[] = "\"\\/\b\f\n\r\t";
    const char *found = c ? strchr(names, c) : NULL;

    if (c == 'u') {
        s->state = STATE_HEX;
        s->literal = 0;
        s->code = 0;
    } else if (found) {
        put_code(s, (unsigned char)codes[found - names]);
    } else {
        s->state = STATE_INVALID;
    }
}

void json_unpaired(struct json_scanner *s)
{
    s->surrogate = 0;
    if (s->takes_unpaired)
        put_code(s, 0xfffd);
    else
        s->state = STATE_INVALID;
}

/* Four hexadecimal digits were read: UTF-16, of which a low surrogate ends a pair. */
static void end_hex(struct json_scanner *s)
{
    bool low = s->code >= 0xdc00 && s->code <= 0xdfff;
    uint32_t high = s->surrogate;

    if (low && high) {
        s->surrogate = 0;
        put_code(s, 0x10000 + ((high - 0xd800) << 10) + (s->code - 0xdc00));
        return;
    }
    if (low || high)
        json_unpaired(s);
    if (low || s->state == STATE_INVALID)
        return;
    if (s->code >= 0xd800 && s->code < 0xdc00) {
        s->surrogate = (uint16_t)s->code;
        s->state = STATE_LOW_SLASH;
    } else {
        put_code(s, s->code);
    }
}

void json_read_hex(struct json_scanner *s, char c)
{
    if (!char_is(c, CHAR_HEX)) {
        s->state = STATE_INVALID;
        return;
    }
    s->code = s->code << 4 | char_hex_value(c);
    if (++s->literal == 4)
        end_hex(s);
}

/* The first byte of a code point of several bytes (RFC 3629 section 4). */
static void begin_utf8(struct json_scanner *s, unsigned char c)
{
    bool two = c >= 0xc2 && c <= 0xdf, three = c >= 0xe0 && c <= 0xef,
         four = c >= 0xf0 && c <= 0xf4;

    s->more = two ? 1 : three ? 2 : 3;
    s->low = c == 0xe0 ? 0xa0 : c == 0xf0 ? 0x90 : 0x80;
    s->high = c == 0xed ? 0x9f : c == 0xf4 ? 0x8f : 0xbf;
    s->code = c & (0x3f >> s->more);
    s->state = two || three || four ? STATE_UTF8 : STATE_INVALID;
}

void json_continue_utf8(struct json_scanner *s, unsigned char c)
{
    if (c < s->low || c > s->high) {
        s->state = STATE_INVALID;
        return;
    }
    s->code = s->code << 6 | (c & 0x3f);
    s->low = 0x80;
    s->high = 0xbf;
    if (--s->more == 0)
        put_code(s, s->code);
}

static inline bool is_plain(unsigned char c)
{
    return c >= ' ' && c < 0x80 && c != '"' && c != '\\';
}

/* Returns the end of a run of plain ASCII: a quote, a backslash, a control byte, a byte above 0x7f,
 * or `end`. */
static inline const char *skip_plain(const char *p, const char *end)
{
#ifdef __SSE2__
    for (; end - p >= SCAN_WIDTH; p += SCAN_WIDTH) {
        __m128i bytes = scan_load(p), quote = _mm_cmpeq_epi8(bytes, _mm_set1_epi8('"')),
                slash = _mm_cmpeq_epi8(bytes, _mm_set1_epi8('\\')),
                other = _mm_cmplt_epi8(bytes, _mm_set1_epi8(' ')); /* signed: also above 0x7f */
        unsigned found = scan_bits(_mm_or_si128(_mm_or_si128(quote, slash), other));
        if (found)
            return p + __builtin_ctz(found);
    }
#endif
    while (p < end && is_plain((unsigned char)*p))
        p++;
    return p;
}

/* Reads a run of plain bytes, and the byte after it. */
const char *json_read_string(struct json_scanner *s, const char *p, const char *end)
{
    const char *run = skip_plain(p, end);

    if (s->in_name) {
        s->token += (uint32_t)(run - p) + 1;
        for (const char *c = p; s->folded && c < run; c++)
            match_name(s, (unsigned char)*c);
    } else if (s->wanted) {
        json_keep(s, (struct slice){p, (size_t)(run - p)});
    }
    if (run == end)
        return end;
    if (*run == '"')
        end_string(s);
    else if (*run == '\\')
        s->state = STATE_ESCAPE;
    else if ((unsigned char)*run >= 0x80)
        begin_utf8(s, (unsigned char)*run);
    else
        s->state = STATE_INVALID;
    return run + 1;
}
