#include "content/json_scanner.h"

enum state {
    STATE_VALUE,
    STATE_ELEMENT_OR_END, /* after [ */
    STATE_NAME_OR_END,    /* after { */
    STATE_NAME,           /* after a comma in an object */
    STATE_COLON,
    STATE_COMMA_OR_END, /* after a value */
    STATE_STRING,
    STATE_UTF8, /* inside of a code point of several bytes */
    STATE_ESCAPE,
    STATE_HEX,       /* scanner.literal: the digits that were read */
    STATE_LOW_SLASH, /* after a high surrogate: \ */
    STATE_LOW_U,     /* and u */
    STATE_LITERAL,
    STATE_MINUS,
    STATE_ZERO,
    STATE_DIGITS,
    STATE_POINT,
    STATE_FRACTION,
    STATE_EXPONENT,
    STATE_EXPONENT_SIGN,
    STATE_EXPONENT_DIGITS,
    STATE_END,
    STATE_INVALID
};

static const struct slice literals[] = {{"true", 4}, {"false", 5}, {"null", 4}};
static const enum scanned_kind literal_kinds[] = {SCANNED_TRUE, SCANNED_FALSE, SCANNED_NULL};

static uint32_t all_paths(const struct json_scanner *s)
{
    return (uint32_t)((UINT64_C(1) << s->paths->count) - 1);
}

void json_scanner_begin(struct json_scanner *s, const struct json_paths *paths,
                        void (*value)(struct json_scanner *, unsigned,
                                      const struct scanned_value *),
                        struct text room)
{
    bool objects_in_array = s->objects_in_array;

    *s = (struct json_scanner){.paths = paths,
                               .value = value,
                               .objects_in_array = objects_in_array,
                               .text = room,
                               .room = (uint32_t)room.cap,
                               .state = STATE_VALUE};
    s->pending = all_paths(s);
}

/* ---- values of paths ------------------------------------------------------------------------- */

/* The paths of `set` that have more than `count` names, or exactly so many. */
static uint32_t longer_paths(const struct json_scanner *s, uint32_t set, unsigned count)
{
    for (unsigned i = 0; i < s->paths->count; i++) {
        if (s->paths->paths[i].count <= count)
            set &= ~(UINT32_C(1) << i);
    }
    return set;
}

static uint32_t ended_paths(const struct json_scanner *s)
{
    return s->pending ? s->pending & ~longer_paths(s, s->pending, s->tracked) : 0;
}

static void report(struct json_scanner *s, struct scanned_value value)
{
    uint32_t paths = ended_paths(s);

    value.text = text_slice(&s->text);
    value.cut = s->text.failed;
    for (unsigned i = 0; paths; i++, paths >>= 1) {
        if (paths & 1)
            s->value(s, i, &value);
    }
}

/* The value begins: notes whether a path wants it. */
static void begin_value(struct json_scanner *s)
{
    s->wanted = ended_paths(s) != 0;
    s->text = text_over(s->text.p, s->room);
}

static void end_value(struct json_scanner *s)
{
    s->pending = s->skipped && s->depth == 1 ? all_paths(s) : 0;
    s->wanted = false;
    s->state = s->depth ? STATE_COMMA_OR_END : STATE_END;
}

/* ---- containers ------------------------------------------------------------------------------ */

static void open_container(struct json_scanner *s, bool object)
{
    uint32_t inside = s->pending ? longer_paths(s, s->pending, s->tracked) : 0;

    if (s->depth == JSON_DEPTH_MAX) {
        s->state = STATE_INVALID;
        return;
    }
    if (s->wanted)
        report(s, (struct scanned_value){.kind = SCANNED_OTHER});
    s->wanted = false;
    if (object && inside) {
        s->alive[s->tracked] = inside;
        s->seen[s->tracked++] = 0;
    }
    if (s->depth == 0) {
        s->is_object = object;
        s->skipped = !object && s->objects_in_array;
    }
    s->objects =
        object ? s->objects | UINT64_C(1) << s->depth : s->objects & ~(UINT64_C(1) << s->depth);
    s->depth++;
    s->pending = s->skipped && s->depth == 1 ? all_paths(s) : 0;
    s->state = object ? STATE_NAME_OR_END : STATE_ELEMENT_OR_END;
}

static bool in_object(const struct json_scanner *s)
{
    return s->objects >> (s->depth - 1) & 1;
}

/* The innermost container is an object of a path. */
static bool in_tracked(const struct json_scanner *s)
{
    return s->tracked && s->depth == s->tracked + s->skipped;
}

static void close_container(struct json_scanner *s)
{
    if (in_tracked(s))
        s->tracked--;
    s->depth--;
    end_value(s);
}

/* ---- strings --------------------------------------------------------------------------------- */

static void begin_name(struct json_scanner *s)
{
    s->in_name = true;
    s->token = 0;
    s->position = 0;
    s->exact = s->folded = in_tracked(s) ? s->alive[s->tracked - 1] : 0;
    s->state = STATE_STRING;
}

/* A letter in lower case. Some readers of JSON fold the Kelvin sign and the long s, too. */
static uint32_t fold(uint32_t code)
{
    if (code == 0x212a)
        return 'k';
    if (code == 0x17f)
        return 's';
    return code < 0x80 ? (unsigned char)ascii_lower((char)code) : code;
}

/* Compares one more code point of a name with the names of the paths. */
static void match_name(struct json_scanner *s, uint32_t code)
{
    uint32_t folded = fold(code);

    for (unsigned i = 0; i < s->paths->count; i++) {
        uint32_t bit = UINT32_C(1) << i;
        if (!(s->folded & bit))
            continue;
        struct slice name = s->paths->paths[i].names[s->tracked - 1];
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
    for (unsigned i = 0; s->folded && i < s->paths->count; i++) {
        if (s->folded >> i & 1 && s->paths->paths[i].names[s->tracked - 1].n != s->position)
            s->folded &= ~(UINT32_C(1) << i);
    }
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
        report(s, (struct scanned_value){.kind = SCANNED_TEXT});
    end_value(s);
}

static void put_utf8(struct text *out, uint32_t code)
{
    if (code >= 0x10000)
        text_char(out, (char)(0xf0 | code >> 18));
    if (code >= 0x800)
        text_char(out, (char)((code >= 0x10000 ? 0x80 : 0xe0) | (code >> 12 & 0x3f)));
    if (code >= 0x80)
        text_char(out, (char)((code >= 0x800 ? 0x80 : 0xc0) | (code >> 6 & 0x3f)));
    text_char(out, (char)(code >= 0x80 ? 0x80 | (code & 0x3f) : code));
}

/* A code point of the string was read. */
static void put_code(struct json_scanner *s, uint32_t code)
{
    s->state = STATE_STRING;
    if (s->in_name && s->folded)
        match_name(s, code);
    else if (s->wanted)
        put_utf8(&s->text, code);
}

static void after_escape(struct json_scanner *s, char c)
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

/* Four hexadecimal digits were read: UTF-16, of which a low surrogate ends a pair. */
static void end_hex(struct json_scanner *s)
{
    bool low = s->code >= 0xdc00 && s->code <= 0xdfff;

    if (low != (s->surrogate != 0)) {
        s->state = STATE_INVALID;
    } else if (low) {
        uint32_t high = s->surrogate;
        s->surrogate = 0;
        put_code(s, 0x10000 + ((high - 0xd800) << 10) + (s->code - 0xdc00));
    } else if (s->code >= 0xd800 && s->code < 0xdc00) {
        s->surrogate = (uint16_t)s->code;
        s->state = STATE_LOW_SLASH;
    } else {
        put_code(s, s->code);
    }
}

static void read_hex(struct json_scanner *s, char c)
{
    static const char digits[] = "0123456789abcdef";
    const char *found = c ? strchr(digits, ascii_lower(c)) : NULL;

    if (!found) {
        s->state = STATE_INVALID;
        return;
    }
    s->code = s->code << 4 | (uint32_t)(found - digits);
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

static void continue_utf8(struct json_scanner *s, unsigned char c)
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

#define ONES UINT64_C(0x0101010101010101)
#define TOPS UINT64_C(0x8080808080808080)

/* Returns whether one of eight bytes ends a run of plain ASCII: a quote, a backslash, a control
 * byte, or a byte above 0x7f. */
static inline bool has_end(uint64_t word)
{
    uint64_t quote = word ^ ONES * '"', slash = word ^ ONES * '\\';

    return ((word | (word - ONES * ' ') | (quote - ONES) | (slash - ONES)) & TOPS) != 0;
}

static inline bool is_plain(unsigned char c)
{
    return c >= ' ' && c < 0x80 && c != '"' && c != '\\';
}

static const char *skip_plain(const char *p, const char *end)
{
    uint64_t word;

    while (end - p >= 8) {
        memcpy(&word, p, 8);
        if (has_end(word))
            break;
        p += 8;
    }
    while (p < end && is_plain((unsigned char)*p))
        p++;
    return p;
}

/* Reads a run of plain bytes, and the byte after it. */
static const char *read_string(struct json_scanner *s, const char *p, const char *end)
{
    const char *run = skip_plain(p, end);

    if (s->in_name) {
        s->token += (uint32_t)(run - p) + 1;
        for (const char *c = p; s->folded && c < run; c++)
            match_name(s, (unsigned char)*c);
    } else if (s->wanted) {
        text_bytes(&s->text, p, (size_t)(run - p));
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

/* ---- numbers and literals -------------------------------------------------------------------- */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static void add_digit(struct json_scanner *s, char c)
{
    if (s->integer >= 0)
        s->integer = s->integer * 10 + (c - '0');
    if (s->integer > JSON_INTEGER_MAX)
        s->integer = -1;
}

static void begin_number(struct json_scanner *s, char c)
{
    s->token = 0;
    s->integer = 0;
    s->negative = c == '-';
    s->state = c == '-' ? STATE_MINUS : c == '0' ? STATE_ZERO : STATE_DIGITS;
    if (c != '-')
        add_digit(s, c);
    if (s->wanted)
        text_char(&s->text, c);
}

/* Returns the state after `c` in a number; STATE_COMMA_OR_END: the number ended before it. */
static enum state number_state(enum state state, char c)
{
    bool digit = is_digit(c), exponent = c == 'e' || c == 'E';

    switch (state) {
    case STATE_MINUS: return c == '0' ? STATE_ZERO : digit ? STATE_DIGITS : STATE_INVALID;
    case STATE_DIGITS:
        if (digit)
            return STATE_DIGITS;
        /* fall through */
    case STATE_ZERO: return c == '.' ? STATE_POINT : exponent ? STATE_EXPONENT : STATE_COMMA_OR_END;
    case STATE_POINT: return digit ? STATE_FRACTION : STATE_INVALID;
    case STATE_FRACTION:
        return digit ? STATE_FRACTION : exponent ? STATE_EXPONENT : STATE_COMMA_OR_END;
    case STATE_EXPONENT:
        if (c == '+' || c == '-')
            return STATE_EXPONENT_SIGN;
        /* fall through */
    case STATE_EXPONENT_SIGN: return digit ? STATE_EXPONENT_DIGITS : STATE_INVALID;
    default: return digit ? STATE_EXPONENT_DIGITS : STATE_COMMA_OR_END;
    }
}

static bool is_integer(const struct json_scanner *s)
{
    return (s->state == STATE_ZERO || s->state == STATE_DIGITS) && !s->negative;
}

static void end_number(struct json_scanner *s)
{
    struct scanned_value value = {.kind = is_integer(s) ? SCANNED_INTEGER : SCANNED_OTHER,
                                  .integer = s->integer};

    if (s->wanted)
        report(s, value);
    end_value(s);
}

/* Returns whether `c` belongs to the number. */
static bool read_number(struct json_scanner *s, char c)
{
    enum state next = number_state(s->state, c);

    if (next == STATE_COMMA_OR_END) {
        end_number(s);
        return false;
    }
    if (next == STATE_DIGITS)
        add_digit(s, c);
    if (s->wanted)
        text_char(&s->text, c);
    s->token++;
    s->state = (uint8_t)next;
    return true;
}

static void begin_literal(struct json_scanner *s, unsigned which)
{
    s->code = which;
    s->literal = 1;
    s->state = STATE_LITERAL;
}

static void read_literal(struct json_scanner *s, char c)
{
    struct slice literal = literals[s->code];

    if (literal.p[s->literal] != c) {
        s->state = STATE_INVALID;
    } else if (++s->literal == literal.n) {
        if (s->wanted)
            report(s, (struct scanned_value){.kind = literal_kinds[s->code]});
        end_value(s);
    }
}

/* ---- the document ---------------------------------------------------------------------------- */

static void read_value(struct json_scanner *s, char c)
{
    begin_value(s);
    switch (c) {
    case '{': open_container(s, true); break;
    case '[': open_container(s, false); break;
    case '"': s->state = STATE_STRING; break;
    case 't': begin_literal(s, 0); break;
    case 'f': begin_literal(s, 1); break;
    case 'n': begin_literal(s, 2); break;
    default:
        if (is_digit(c) || c == '-')
            begin_number(s, c);
        else
            s->state = STATE_INVALID;
    }
}

static void read_comma_or_end(struct json_scanner *s, char c)
{
    if (c == ',')
        s->state = in_object(s) ? STATE_NAME : STATE_VALUE;
    else if (c == (in_object(s) ? '}' : ']'))
        close_container(s);
    else
        s->state = STATE_INVALID;
}

/* Reads a byte between values, names and punctuation. */
static void read_structure(struct json_scanner *s, char c)
{
    if (c == ' ' || c == '\n' || c == '\r' || c == '\t')
        return;
    switch (s->state) {
    case STATE_COMMA_OR_END: read_comma_or_end(s, c); break;
    case STATE_COLON: s->state = c == ':' ? STATE_VALUE : STATE_INVALID; break;
    case STATE_NAME_OR_END:
    case STATE_NAME:
        if (c == '"')
            begin_name(s);
        else if (c == '}' && s->state == STATE_NAME_OR_END)
            close_container(s);
        else
            s->state = STATE_INVALID;
        break;
    case STATE_ELEMENT_OR_END:
        if (c == ']')
            close_container(s);
        else
            read_value(s, c);
        break;
    case STATE_VALUE: read_value(s, c); break;
    default: s->state = STATE_INVALID;
    }
}

/* Reads one byte that is not plain content of a string. Returns whether it is used up. */
static bool read_byte(struct json_scanner *s, char c)
{
    switch (s->state) {
    case STATE_UTF8: continue_utf8(s, (unsigned char)c); return true;
    case STATE_ESCAPE: after_escape(s, c); return true;
    case STATE_HEX: read_hex(s, c); return true;
    case STATE_LOW_SLASH: s->state = c == '\\' ? STATE_LOW_U : STATE_INVALID; return true;
    case STATE_LOW_U:
        s->state = c == 'u' ? STATE_HEX : STATE_INVALID;
        s->literal = 0;
        s->code = 0;
        return true;
    case STATE_LITERAL: read_literal(s, c); return true;
    case STATE_MINUS:
    case STATE_ZERO:
    case STATE_DIGITS:
    case STATE_POINT:
    case STATE_FRACTION:
    case STATE_EXPONENT:
    case STATE_EXPONENT_SIGN:
    case STATE_EXPONENT_DIGITS: return read_number(s, c);
    default: read_structure(s, c); return true;
    }
}

enum json_scan json_scanner_read(struct json_scanner *s, struct slice bytes)
{
    const char *p = bytes.p, *end = p + bytes.n;

    while (p < end && s->state != STATE_INVALID) {
        if (s->state == STATE_STRING)
            p = read_string(s, p, end);
        else if (read_byte(s, *p))
            p++;
        if (s->token > JSON_TOKEN_MAX)
            s->state = STATE_INVALID;
    }
    return s->state == STATE_INVALID ? JSON_INVALID
           : s->state == STATE_END   ? JSON_COMPLETE
                                     : JSON_MORE;
}

enum json_scan json_scanner_end(struct json_scanner *s)
{
    bool number = s->state == STATE_ZERO || s->state == STATE_DIGITS ||
                  s->state == STATE_FRACTION || s->state == STATE_EXPONENT_DIGITS;

    if (number && !s->depth)
        end_number(s);
    if (s->state != STATE_END)
        s->state = STATE_INVALID;
    return s->state == STATE_END ? JSON_COMPLETE : JSON_INVALID;
}
