/* tunnel.h - a connection after 101 Switching Protocols (RFC 9110 section 7.8): uninterpreted bytes
 * in both directions.
 *
 *   client --exchange.request---> upstream
 *   client <--exchange.response-- upstream
 *
 * Each direction ends with its sender's FIN, which weir forwards. The tunnel ends:
 *   - when both directions have ended,
 *   - when one side fails, or
 *   - when no data has moved for timeouts.tunnel.
 * Back-pressure is that of relay.h: one piece per direction. The limits apply only to the
 * request that opens the tunnel. */
#ifndef WEIR_PROXY_TUNNEL_H
#define WEIR_PROXY_TUNNEL_H

#include "proxy/exchange.h"
#include "proxy/relay.h"

/* Returns the protocols that a request offers to switch to, or an empty slice if weir does not
 * forward the upgrade. The request must be HTTP/1.1, have no content, and name Upgrade in
 * Connection. Protocols that carry HTTP (h2c, HTTP/2.0, TLS/1.0) are never forwarded: weir
 * could not limit their requests. */
struct slice tunnel_protocol(const struct request_head *head, const struct framing *framing);

/* Starts the tunnel after the 101 was sent to the client. */
void tunnel_begin(struct exchange *x);
/* Each of these may end the exchange. */

void tunnel_client_readable(struct exchange *x);
void tunnel_client_writable(struct exchange *x);
void tunnel_link_readable(struct exchange *x);
void tunnel_link_writable(struct exchange *x);

#endif
