#include "content/json_scanner_internal.h"

static const struct slice literals[] = {SLICE("true"), SLICE("false"), SLICE("null")};
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
    bool objects_in_array = s->objects_in_array, takes_unpaired = s->takes_unpaired;

    *s = (struct json_scanner){.paths = paths,
                               .value = value,
                               .objects_in_array = objects_in_array,
                               .takes_unpaired = takes_unpaired,
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

void json_report(struct json_scanner *s, struct scanned_value value)
{
    uint32_t paths = ended_paths(s);

    value.text = text_slice(&s->text);
    value.cut = s->text.failed;
    for (unsigned i = 0; paths; i++, paths >>= 1) {
        if (paths & 1)
            s->value(s, i, &value);
    }
}

void json_keep(struct json_scanner *s, struct slice bytes)
{
    struct text *text = &s->text;

    while (bytes.n && !text->failed) {
        size_t room = text->cap - text->n, size = bytes.n < room ? bytes.n : room;
        if (size)
            text_bytes(text, bytes.p, size);
        bytes = (struct slice){bytes.p + size, bytes.n - size};
        if (bytes.n && s->piece) {
            s->piece(s, text_slice(text));
            text->n = 0;
        } else if (bytes.n) {
            text->failed = true;
        }
    }
}

/* The value begins: notes whether a path wants it. */
static void begin_value(struct json_scanner *s)
{
    s->wanted = ended_paths(s) != 0;
    s->text = text_over(s->text.p, s->room);
}

void json_end_value(struct json_scanner *s)
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
        json_report(s, (struct scanned_value){.kind = SCANNED_OTHER});
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
bool json_in_tracked(const struct json_scanner *s)
{
    return s->tracked && s->depth == s->tracked + s->skipped;
}

static void close_container(struct json_scanner *s)
{
    if (json_in_tracked(s))
        s->tracked--;
    s->depth--;
    json_end_value(s);
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
        json_keep(s, (struct slice){&c, 1});
}

/* Returns the state after `c` in a number; STATE_COMMA_OR_END: the number ended before it. */
static enum json_state number_state(enum json_state state, char c)
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
        json_report(s, value);
    json_end_value(s);
}

/* Digits of a number that no path selects: most of them, in many documents. */
static const char *skip_digits(struct json_scanner *s, const char *p, const char *end)
{
    const char *start = p;

    while (p < end && is_digit(*p))
        p++;
    s->token += (uint32_t)(p - start);
    return p;
}

/* Returns whether `c` belongs to the number. */
static bool scan_number(struct json_scanner *s, char c)
{
    enum json_state next = number_state(s->state, c);

    if (next == STATE_COMMA_OR_END) {
        end_number(s);
        return false;
    }
    if (next == STATE_DIGITS)
        add_digit(s, c);
    if (s->wanted)
        json_keep(s, (struct slice){&c, 1});
    s->token++;
    s->state = (uint8_t)next;
    return true;
}

/* More digits change nothing, since the value is not wanted. */
static inline bool in_digits(const struct json_scanner *s)
{
    return !s->wanted && (s->state == STATE_DIGITS || s->state == STATE_FRACTION ||
                          s->state == STATE_EXPONENT_DIGITS);
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
            json_report(s, (struct scanned_value){.kind = literal_kinds[s->code]});
        json_end_value(s);
    }
}

/* ---- the document ---------------------------------------------------------------------------- */

static void scan_value(struct json_scanner *s, char c)
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

static void read_name_or_end(struct json_scanner *s, char c)
{
    if (c == '"')
        json_begin_name(s);
    else if (c == '}' && s->state == STATE_NAME_OR_END)
        close_container(s);
    else
        s->state = STATE_INVALID;
}

static void read_element_or_end(struct json_scanner *s, char c)
{
    if (c == ']')
        close_container(s);
    else
        scan_value(s, c);
}

static inline bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

/* Reads a byte between values, names and punctuation, which white space may stand between. */
static inline void read_structure(struct json_scanner *s, char c)
{
    if (is_space(c))
        return;
    switch (s->state) {
    case STATE_COMMA_OR_END: read_comma_or_end(s, c); break;
    case STATE_COLON: s->state = c == ':' ? STATE_VALUE : STATE_INVALID; break;
    case STATE_NAME_OR_END:
    case STATE_NAME: read_name_or_end(s, c); break;
    case STATE_ELEMENT_OR_END: read_element_or_end(s, c); break;
    case STATE_VALUE: scan_value(s, c); break;
    default: s->state = STATE_INVALID;
    }
}

/* Reads one byte that is not plain content of a string. Returns whether it is used up. */
static bool read_byte(struct json_scanner *s, char c)
{
    switch (s->state) {
    case STATE_UTF8: json_continue_utf8(s, (unsigned char)c); return true;
    case STATE_ESCAPE: json_after_escape(s, c); return true;
    case STATE_HEX: json_read_hex(s, c); return true;
    case STATE_LOW_SLASH:
        s->state = STATE_LOW_U;
        if (c != '\\')
            json_unpaired(s);
        return c == '\\';
    case STATE_LOW_U:
        if (c != 'u')
            json_unpaired(s);
        if (s->state != STATE_INVALID)
            json_after_escape(s, c);
        return true;
    case STATE_LITERAL: read_literal(s, c); return true;
    case STATE_MINUS:
    case STATE_ZERO:
    case STATE_DIGITS:
    case STATE_POINT:
    case STATE_FRACTION:
    case STATE_EXPONENT:
    case STATE_EXPONENT_SIGN:
    case STATE_EXPONENT_DIGITS: return scan_number(s, c);
    default: /* after the document */
        if (!is_space(c))
            s->state = STATE_INVALID;
        return true;
    }
}

enum json_scan json_scanner_read(struct json_scanner *s, struct slice bytes)
{
    const char *p = bytes.p, *end = p + bytes.n;

    while (p < end && s->state != STATE_INVALID) {
        if (s->state <= STATE_COMMA_OR_END) {
            read_structure(s, *p++);
            continue;
        }
        if (s->state == STATE_STRING)
            p = json_read_string(s, p, end);
        else if (in_digits(s) && is_digit(*p))
            p = skip_digits(s, p, end);
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
