#include "http/credentials.h"

#include "http/parse.h"

/* Returns true if the text is the one base64 encoding of its bytes (RFC 4648 section 3.5): others
 * with unknown characters, other padding or unused bits are accepted by lenient decoders. */
static bool is_canonical_base64(struct slice text)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    static const unsigned unused_bits[] = {0, 3, 15}; /* of the last digit, by padding */
    const char *digit = digits;
    unsigned padding = 0;

    for (; padding < 2 && text.n && text.p[text.n - 1] == '='; padding++)
        text.n--;
    for (size_t i = 0; i < text.n; i++)
        if (!(digit = memchr(digits, text.p[i], sizeof digits - 1)))
            return false;
    return (text.n + padding) % 4 == 0 && ((unsigned)(digit - digits) & unused_bits[padding]) == 0;
}

/* The blanks of Unicode that are not ASCII, and U+FEFF, which JavaScript trims too. */
static bool is_blank_character(struct slice c)
{
    static const char *const blanks[] = {"\302\205",     "\302\240",     "\341\232\200",
                                         "\342\200\250", "\342\200\251", "\342\200\257",
                                         "\342\201\237", "\343\200\200", "\357\273\277"};

    for (unsigned i = 0; i < COUNT_OF(blanks); i++)
        if (slice_equal(c, slice_of(blanks[i])))
            return true;
    return c.n == 3 && memcmp(c.p, "\342\200", 2) == 0 && (unsigned char)c.p[2] <= 0x8a;
}

bool value_is_trimmed_by_some(struct slice value)
{
    bool is_character = false;

    for (size_t n = 2; n <= 4 && n <= value.n; n++) {
        struct slice first = {value.p, n}, last = {value.p + value.n - n, n};
        if (is_blank_character(first) || is_blank_character(last))
            return true;
        is_character |= text_is_utf8(last);
    }
    return value.n && (memchr("\205\240", value.p[0], 2) ||
                       (!is_character && memchr("\205\240", value.p[value.n - 1], 2)));
}

/* Servers separate words at some of these characters: at SP and HTAB, and in text of Latin-1 also
 * at others that are not ASCII. */
static bool is_gap(char c)
{
    return (unsigned char)c <= ' ' || (unsigned char)c >= 0x7f;
}

static struct slice first_word(struct slice text)
{
    size_t n = 0;

    while (n < text.n && !is_gap(text.p[n]))
        n++;
    return (struct slice){text.p, n};
}

bool bearer_is_plain(struct slice token)
{
    return first_word(token).n == token.n && !memchr(token.p, ',', token.n) &&
           !memchr(token.p, ';', token.n) && !memchr(token.p, '"', token.n);
}

bool bearer_is_in(struct slice value)
{
    const struct slice bearer = SLICE("Bearer");

    for (; value.n > bearer.n; value.p++, value.n--)
        if (is_gap(value.p[bearer.n]) && slice_starts_with_nocase(value, bearer))
            return true;
    return false;
}

/* Returns the number of bytes before the first SP or HTAB. */
static size_t first_blank(struct slice text)
{
    size_t n = 0;

    while (n < text.n && text.p[n] != ' ' && text.p[n] != '\t')
        n++;
    return n;
}

/* Returns true for "TOKEN x", of which many servers use the first word. Parameters as in "a=b, c=d"
 * are no token (RFC 9110 section 11.4). */
static bool has_word_after_token(struct slice rest)
{
    struct slice word = first_word(rest);

    if (word.n == rest.n)
        return false;
    while (word.n && word.p[word.n - 1] == '=')
        word.n--;
    return !memchr(word.p, '=', word.n);
}

/* Returns why servers may read any number of such values alike; NULL: they do not. `scheme` is
 * empty if the value does not begin with one, and `rest` is then the whole value. */
static const char *fault_of(struct slice value, struct slice scheme, struct slice rest)
{
    static const char ends_elsewhere[] = "servers may end the token in Authorization elsewhere";

    if (slice_equal_nocase(scheme, SLICE("Basic")))
        return is_canonical_base64(rest) ? NULL
                                         : "the credentials of Basic are not canonical base64";
    if (slice_equal_nocase(scheme, SLICE("Bearer")))
        return bearer_is_plain(rest) ? NULL : ends_elsewhere;
    bool is_word = scheme.n || first_blank(value) == value.n;
    return bearer_is_in(value) || (is_word && has_word_after_token(rest)) ? ends_elsewhere : NULL;
}

const char *credentials_split(struct slice name, struct slice *value, struct text *scheme)
{
    if (!slice_equal_nocase(name, SLICE("Authorization")))
        return NULL;
    size_t end = first_blank(*value);
    struct slice word = {value->p, end}, rest = {value->p + end, value->n - end};
    if (rest.n == 0 || word.n >= CREDENTIALS_SCHEME_MAX || !slice_is_token(word)) {
        word.n = 0;
        rest = *value;
    }
    rest = slice_trim_ows(rest);
    const char *fault = fault_of(*value, word, rest);
    if (fault || word.n == 0)
        return fault;
    for (size_t i = 0; i < word.n; i++) {
        char c = ascii_lower(word.p[i]);
        text_char(scheme, i == 0 && c >= 'a' && c <= 'z' ? (char)(c - 32) : c);
    }
    text_char(scheme, ' ');
    *value = rest;
    return NULL;
}
