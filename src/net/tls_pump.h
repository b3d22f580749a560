/* tls_pump.h - TLS for code that needs a plain socket, such as hiredis 0.14.
 *
 *   owner <--> [plain socket pair] <--> pump: TLS <--> [socket] <--> server
 *
 * The owner reads and writes its end of the pair as if it were the connection. It sees the end of
 * the connection, and every failure, as the end of input; tls_pump_state() then returns which. */
#ifndef WEIR_NET_TLS_PUMP_H
#define WEIR_NET_TLS_PUMP_H

#include <event2/event.h>

#include "base/descriptors.h"
#include "net/tls.h"

struct tls_pump;

/* Takes ownership of `fd`, a non-blocking socket that is connected or connecting, also on failure.
 * Sets `*plain` to the owner's end of the pair, which is non-blocking. `client` must outlive the
 * pump. The server's certificate must be valid for `host`, which is copied. It needs three more
 * descriptors, from the reserve for `use` if there are no others. Returns NULL with errno if out of
 * memory or descriptors. */
struct tls_pump *tls_pump_new(struct event_base *base, int fd, enum descriptor_use use,
                              struct tls_client *client, const char *host, int *plain);
/* Closes the connection. The owner closes its end itself. NULL is allowed. */
void tls_pump_free(struct tls_pump *pump);

/* Move what has arrived on either side at once, instead of in the next loop iteration. */
void tls_pump_send(struct tls_pump *pump);
void tls_pump_receive(struct tls_pump *pump);

enum tls_pump_state {
    TLS_PUMP_CONNECTING,
    TLS_PUMP_HANDSHAKE,
    TLS_PUMP_OPEN,
    TLS_PUMP_ENDED,         /* the server has closed the connection */
    TLS_PUMP_NOT_CONNECTED, /* connecting failed */
    TLS_PUMP_FAILED,        /* TLS failed: *problem is set */
};
/* `*why` is the reason (for the log) of the last two, and may be empty. */
enum tls_pump_state tls_pump_state(const struct tls_pump *pump, enum tls_problem *problem,
                                   const char **why);

#endif
