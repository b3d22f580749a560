/* base64url.h - base64url without padding (RFC 4648 section 5, RFC 7515 section 2). */
#ifndef WEIR_POLICY_BASE64URL_H
#define WEIR_POLICY_BASE64URL_H

#include "base/slice.h"

/* Decodes into `out`, which has `cap` bytes. Returns false if the text is not base64url, has
 * padding, white space or bits after the last byte that are not zero, or does not fit. There is one
 * encoding of each sequence of bytes, so one token cannot be written in two ways. */
MUST_CHECK bool base64url_decode(struct slice text, unsigned char *out, size_t cap, size_t *size);

#endif
