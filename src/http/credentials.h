/* credentials.h - spellings of Authorization (RFC 9110 section 11.4) and of other identities. */
#ifndef WEIR_HTTP_CREDENTIALS_H
#define WEIR_HTTP_CREDENTIALS_H

#include "base/text.h"

enum { CREDENTIALS_SCHEME_MAX = 33 }; /* bytes that credentials_split() writes at most */

/* Returns true if the value begins or ends with a blank of Unicode, as UTF-8 or as the bytes 0x85
 * and 0xa0 of Latin-1. Python and JavaScript trim these: any number of such values is one. */
bool value_is_trimmed_by_some(struct slice value);
static inline bool value_may_be_trimmed(struct slice value)
{
    return value.n && ((value.p[0] | value.p[value.n - 1]) & 0x80) &&
           value_is_trimmed_by_some(value);
}

/* Returns false for a token of Bearer (RFC 6750 section 2.1) that servers may end elsewhere: at a
 * blank (`.split()`), ",", ";" or quotes (Laravel, Rails), or a character that is not ASCII. Others
 * that RFC 6750 forbids are accepted, as in "1|KEY" of Laravel Sanctum. */
bool bearer_is_plain(struct slice token);
/* Returns true if "Bearer" and a blank stand anywhere: some servers search for them. */
bool bearer_is_in(struct slice value);

/* Splits the value of a field: servers ignore the case of the scheme and the number of blanks after
 * it. Writes the scheme in one spelling to `scheme`: the first letter in upper case, the others in
 * lower case, and one space ("Basic "). `*value` is then the rest. Changes nothing if the field is
 * not Authorization, if the value has no blank, or if it does not begin with a scheme of at most 32
 * bytes.
 *
 * Returns NULL, or the reason why servers may read any number of such values alike; nothing is
 * changed then. Credentials of Basic (RFC 7617) are not canonical base64, the token of Bearer is
 * not plain, or a word follows another token; parameters may have several. */
MUST_CHECK const char *credentials_split(struct slice name, struct slice *value,
                                         struct text *scheme);

#endif
