/* tunnel.h - what a connection becomes after 101 Switching Protocols (RFC 9110 section 7.8): bytes both ways, nobody looks at them.
 *
 *   client --request half--> upstream
 *   client <-response half-- upstream
 *
 * Each half ends with its sender's FIN, which is passed on. The tunnel ends when both have ended, when one side fails, or when nothing has
 * moved for timeouts.tunnel. Back-pressure is that of relay.h: one piece in each direction. The limits were asked once, for
 * the request that opened it. */
#ifndef WEIR_PROXY_TUNNEL_H
#define WEIR_PROXY_TUNNEL_H

#include "proxy/exchange.h"

/* The protocol that a request asks to switch to, where weir would tunnel it: an HTTP/1.1 request without
 * content whose Connection names Upgrade. Protocols that carry HTTP (h2c, HTTP/2.0, TLS/1.0) are never passed on: their
 * requests could not be limited.
 * Empty: none. */
struct slice tunnel_protocol(const struct request_head *head, const struct framing *framing);

/* The 101 was sent to the client; `behind` is what the server sent after it. May end the exchange, as may the
 * others. */
void tunnel_begin(struct exchange *x, struct unread unread);

void tunnel_client_readable(struct exchange *x);
void tunnel_client_writable(struct exchange *x);
void tunnel_link_readable(struct exchange *x);
void tunnel_link_writable(struct exchange *x);

#endif
