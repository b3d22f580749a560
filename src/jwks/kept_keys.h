/* kept_keys.h - the last document of a URL, in a file of the state directory, for a restart while
 * its issuer is unavailable. Blocks for the time of a small file. */
#ifndef WEIR_JWKS_KEPT_KEYS_H
#define WEIR_JWKS_KEPT_KEYS_H

#include "base/slice.h"

enum { KEPT_WHY_MAX = 256 };

/* Returns `set`, or the directory that systemd has created (STATE_DIRECTORY). NULL: none, so
 * nothing is kept. */
const char *kept_keys_directory(const char *set);

/* Replaces the file of the URL, mode 0600, in one step. Returns false, with the reason in `why`. */
MUST_CHECK bool kept_keys_write(const char *directory, const char *url, uint64_t fetched_wall_us,
                                struct slice content, char why[static KEPT_WHY_MAX]);

/* Reads the file of the URL into `*bytes`, which the caller frees, with `*content` in it. Returns
 * false if there is none (`why` is empty), or it cannot be used: others could have written it, or
 * it is not what kept_keys_write() writes. The content is as trustworthy as the directory. */
MUST_CHECK bool kept_keys_read(const char *directory, const char *url, char **bytes,
                               struct slice *content, uint64_t *fetched_wall_us,
                               char why[static KEPT_WHY_MAX]);

#endif
