#include "http/credentials.h"

#include "http/parse.h"

struct slice credentials_split(struct slice name, struct slice value, struct text *scheme)
{
    size_t n = 0;

    if (!slice_equal_nocase(name, SLICE("Authorization")))
        return value;
    while (n < value.n && value.p[n] != ' ' && value.p[n] != '\t')
        n++;
    if (n == value.n || n >= CREDENTIALS_SCHEME_MAX || !slice_is_token((struct slice){value.p, n}))
        return value;
    for (size_t i = 0; i < n; i++) {
        char c = ascii_lower(value.p[i]);
        text_char(scheme, i == 0 && c >= 'a' && c <= 'z' ? (char)(c - 32) : c);
    }
    text_char(scheme, ' ');
    return slice_trim_ows((struct slice){value.p + n, value.n - n});
}
