/* secure.h - TLS of connections to Redis (redis.tls): whose certificate is expected, and why a
 * connection failed. */
#ifndef WEIR_REDIS_SECURE_H
#define WEIR_REDIS_SECURE_H

#include "net/tls_pump.h"
#include "policy/redis_settings.h"
#include "redis/failure.h"

/* Puts TLS between `fd`, which may still be connecting to `address`, and `*plain`; see
 * tls_pump_new(). The certificate must be for redis.tls.server_name; unless given, for the host
 * name of the server in the policy, or else for its IP address. */
struct tls_pump *redis_secure(struct event_base *base, const struct redis_settings *settings,
                              const struct address *address, int fd, int *plain);

/* Returns the cause if the connection could not be established or TLS failed, and sets `*detail`.
 * `timed_out`: the caller has waited for too long. Returns REDIS_OK_ANSWER for other causes, and
 * if `pump` is NULL. */
enum redis_failure redis_secure_failure(const struct tls_pump *pump, bool timed_out,
                                        const char **detail);

#endif
