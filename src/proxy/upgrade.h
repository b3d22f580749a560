/* upgrade.h - Upgrade (RFC 9110 section 7.8): the offer of a request, and the check of a 101. */
#ifndef WEIR_PROXY_UPGRADE_H
#define WEIR_PROXY_UPGRADE_H

#include "proxy/exchange_state.h"

/* Returns the protocols that a request offers to switch to, or an empty slice if weir does not
 * forward the upgrade. The request must be HTTP/1.1, have no content, and name Upgrade in
 * Connection. Protocols that carry HTTP (h2c, HTTP/2.0, TLS/1.0) are never forwarded: weir
 * could not limit their requests. */
struct slice upgrade_offer(const struct request_head *head, const struct framing *framing);

/* Checks the fields of a 101. It needs exactly one Upgrade field, which Connection names. The field
 * lists at least one protocol, and the request offered all of them. Returns NULL if valid, else an
 * error text. */
const char *upgrade_fault(const struct exchange *x, const struct fields *fields);

#endif
