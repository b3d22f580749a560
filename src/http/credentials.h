/* credentials.h - spellings of Authorization (RFC 9110 section 11.4). */
#ifndef WEIR_HTTP_CREDENTIALS_H
#define WEIR_HTTP_CREDENTIALS_H

#include "base/text.h"

enum { CREDENTIALS_SCHEME_MAX = 33 }; /* bytes that credentials_split() writes at most */

/* Splits the value of a field: servers ignore the case of the scheme and the number of blanks after
 * it. Writes the scheme in one spelling to `scheme`: the first letter in upper case, the others in
 * lower case, and one space ("Basic "). `*value` is then the rest. Changes nothing if the field is
 * not Authorization, if the value has no blank, or if it does not begin with a scheme of at most 32
 * bytes.
 *
 * Returns false, and changes nothing, for credentials of Basic (RFC 7617) that are not canonical
 * base64: many servers accept any number of such spellings for one account. */
MUST_CHECK bool credentials_split(struct slice name, struct slice *value, struct text *scheme);

#endif
