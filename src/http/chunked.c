#include "http/chunked.h"

#include "http/parse.h"
#include "http/trailers.h"

/* RFC 9112 section 7.1:
 *
 *   chunk      = 1*HEXDIG *( BWS ";" BWS name [ BWS "=" BWS ( token / quoted-string ) ] ) CRLF data CRLF
 *   last-chunk = 1*"0" and the same extensions CRLF, then trailer lines, then CRLF
 *
 *   .-> SIZE -> EXT_... -> SIZE_LF -+-> DATA -> DATA_CR -> DATA_LF -.
 *   `-------------------------------|-------------------------------'
 *                                   `-> TRAILER_START -> END_LF -> END
 *                                       ^           `-> TRAILER_NAME -> TRAILER_VALUE -> TRAILER_LF -.
 *                                       `------------------------------------------------------------'
 */
enum chunk_state {
    SIZE,
    EXT_BEFORE_SEMICOLON, /* BWS: only ";" may follow */
    EXT_NAME_START,
    EXT_NAME,
    EXT_AFTER_NAME, /* BWS: ";" or "=" */
    EXT_VALUE_START,
    EXT_VALUE,
    EXT_QUOTED,
    EXT_ESCAPED,
    EXT_QUOTED_END,
    SIZE_LF,
    DATA,
    DATA_CR,
    DATA_LF,
    TRAILER_START,
    TRAILER_NAME,
    TRAILER_VALUE,
    TRAILER_LF,
    END_LF,
    END,
    BAD
};

enum { SIZE_DIGITS_MAX = 16 };

void chunked_begin(struct chunked *c)
{
    *c = (struct chunked){.state = SIZE};
}

static enum chunk_state bad(const char **why, const char *words)
{
    *why = words;
    return BAD;
}

/* Returns `to` if `c` is `expected`, else BAD. */
static enum chunk_state expect(char c, char expected, enum chunk_state to, const char **why)
{
    return c == expected ? to
                         : bad(why, expected == '\n' ? "bare CR in the chunked coding"
                                                     : "chunk data without CRLF");
}

/* Returns the next state after a complete chunk-size, extension or value. */
static enum chunk_state after_extension(char c, const char **why, const char *otherwise)
{
    switch (c) {
    case '\r': return SIZE_LF;
    case ';': return EXT_NAME_START;
    case ' ':
    case '\t': return EXT_BEFORE_SEMICOLON;
    default: return bad(why, otherwise);
    }
}

static enum chunk_state size_step(struct chunked *c, char byte, const char **why)
{
    if (!char_is(byte, CHAR_HEX))
        return c->digits ? after_extension(byte, why, "invalid chunk size")
                         : bad(why, "invalid chunk size");
    /* Checked before the multiplication (CVE-2013-2028, CVE-2021-40346). The maximum is INT64_MAX,
     * as for Content-Length. */
    if (c->digits == SIZE_DIGITS_MAX || c->left > (uint64_t)INT64_MAX >> 4)
        return bad(why, "chunk size too large");
    c->digits++;
    c->left = c->left << 4 | char_hex_value(byte);
    return SIZE;
}

static enum chunk_state extension_step(enum chunk_state state, char c, const char **why)
{
    const char *invalid = "invalid chunk extension";
    bool space = c == ' ' || c == '\t';

    switch (state) {
    case EXT_BEFORE_SEMICOLON: return space ? state : c == ';' ? EXT_NAME_START : bad(why, invalid);
    case EXT_NAME_START:
        return space ? state : char_is(c, CHAR_TOKEN) ? EXT_NAME : bad(why, invalid);
    case EXT_NAME:
        if (char_is(c, CHAR_TOKEN))
            return EXT_NAME;
        return c == '=' ? EXT_VALUE_START
               : space  ? EXT_AFTER_NAME
                        : after_extension(c, why, invalid);
    case EXT_AFTER_NAME:
        return space      ? state
               : c == '=' ? EXT_VALUE_START
               : c == ';' ? EXT_NAME_START
                          : bad(why, invalid);
    case EXT_VALUE_START:
        if (space)
            return state;
        return c == '"' ? EXT_QUOTED : char_is(c, CHAR_TOKEN) ? EXT_VALUE : bad(why, invalid);
    case EXT_VALUE: return char_is(c, CHAR_TOKEN) ? EXT_VALUE : after_extension(c, why, invalid);
    case EXT_QUOTED:
        return c == '"'                ? EXT_QUOTED_END
               : c == '\\'             ? EXT_ESCAPED
               : char_is(c, CHAR_TEXT) ? state
                                       : bad(why, invalid);
    case EXT_ESCAPED: return char_is(c, CHAR_TEXT) ? EXT_QUOTED : bad(why, invalid);
    default: return after_extension(c, why, invalid); /* EXT_QUOTED_END */
    }
}

/* Same grammar as the field lines of a head (RFC 9112 section 7.1.2). */
static enum chunk_state trailer_step(enum chunk_state state, char c, const char **why)
{
    switch (state) {
    case TRAILER_START:
        return c == '\r'                ? END_LF
               : char_is(c, CHAR_TOKEN) ? TRAILER_NAME
                                        : bad(why, "invalid trailer name");
    case TRAILER_NAME:
        return c == ':'                 ? TRAILER_VALUE
               : char_is(c, CHAR_TOKEN) ? state
                                        : bad(why, "invalid trailer name");
    default: /* TRAILER_VALUE */
        return c == '\r'               ? TRAILER_LF
               : char_is(c, CHAR_TEXT) ? state
                                       : bad(why, "invalid trailer value");
    }
}

/* Counts one extension or trailer byte. Returns whether it is within the limit. */
static bool count_byte(struct chunked *c)
{
    if (c->state >= TRAILER_START)
        return ++c->counted <= TRAILERS_MAX;
    return ++c->counted <= CHUNK_EXTENSIONS_MAX &&
           ++c->extensions_total <= CHUNK_EXTENSIONS_TOTAL_MAX;
}

static enum chunk_state after_size_line(struct chunked *c)
{
    c->counted = 0;
    c->digits = 0;
    return c->left ? DATA : TRAILER_START;
}

/* Processes one byte that is not chunk data. */
static enum chunk_state step(struct chunked *c, char byte, const char **why)
{
    switch (c->state) {
    case SIZE: return size_step(c, byte, why);
    case SIZE_LF:
        return byte == '\n' ? after_size_line(c) : bad(why, "bare CR in the chunked coding");
    case DATA_CR: return expect(byte, '\r', DATA_LF, why);
    case DATA_LF: return expect(byte, '\n', SIZE, why);
    case TRAILER_LF: return expect(byte, '\n', TRAILER_START, why);
    case END_LF: return expect(byte, '\n', END, why);
    case BAD: return bad(why, "the chunked coding was invalid before");
    default: break;
    }
    if (!count_byte(c))
        return bad(why,
                   c->state >= TRAILER_START ? "trailers too long" : "chunk extensions too long");
    return c->state >= TRAILER_START ? trailer_step(c->state, byte, why)
                                     : extension_step(c->state, byte, why);
}

/* Moves the available chunk data to `to`. Returns the number of bytes moved. */
static size_t data_move(struct chunked *c, char *to, const char *from, size_t there)
{
    size_t n = c->left < there ? (size_t)c->left : there;
    if (to != from)
        memmove(to, from, n);
    c->left -= n;
    if (c->left == 0)
        c->state = DATA_CR;
    return n;
}

enum chunked_result chunked_decode(struct chunked *c, char *bytes, size_t *size, size_t *content,
                                   const char **why)
{
    size_t in = 0, out = 0, trailers = 0;

    while (in < *size && c->state != END) {
        if (c->state == DATA) {
            size_t n = data_move(c, bytes + out, bytes + in, *size - in);
            in += n;
            out += n;
        } else {
            bool trailer = c->state >= TRAILER_START;
            char byte = bytes[in];
            if ((c->state = (uint8_t)step(c, byte, why)) == BAD)
                break;
            if (trailer)
                bytes[out + trailers++] = byte;
            in++;
        }
    }
    c->trailers = (uint32_t)trailers;
    *size = in;
    *content = out;
    return c->state == END ? CHUNKED_END : c->state == BAD ? CHUNKED_BAD : CHUNKED_MORE;
}
