/* via.h - the Via field (RFC 9110 section 7.6.3). The pseudonym is of one process, so that a
 * request that comes back to it is recognised. */
#ifndef WEIR_HTTP_VIA_H
#define WEIR_HTTP_VIA_H

#include "http/head.h"

/* Sets the pseudonym to "weir-" and eight digits of `random`; before, it is "weir". Call it before
 * the first message. */
void via_set_pseudonym(uint64_t random);

/* Returns weir's line in a message that was received with this version. */
struct slice via_line(enum http_version version, uint8_t minor);

/* Returns how often the request has passed through this process. */
unsigned via_passes(const struct fields *fields);

#endif
