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

bool credentials_split(struct slice name, struct slice *value, struct text *scheme)
{
    struct slice word = {value->p, 0}, rest;

    if (!slice_equal_nocase(name, SLICE("Authorization")))
        return true;
    while (word.n < value->n && value->p[word.n] != ' ' && value->p[word.n] != '\t')
        word.n++;
    if (word.n == value->n || word.n >= CREDENTIALS_SCHEME_MAX || !slice_is_token(word))
        return true;
    rest = slice_trim_ows((struct slice){value->p + word.n, value->n - word.n});
    if (slice_equal_nocase(word, SLICE("Basic")) && !is_canonical_base64(rest))
        return false;
    for (size_t i = 0; i < word.n; i++) {
        char c = ascii_lower(word.p[i]);
        text_char(scheme, i == 0 && c >= 'a' && c <= 'z' ? (char)(c - 32) : c);
    }
    text_char(scheme, ' ');
    *value = rest;
    return true;
}
