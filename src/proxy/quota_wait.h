/* quota_wait.h - looks up the client's quota from a database, at the start of LIMIT, if the policy
 * has quotas.
 *
 * If the quota is not in the cache, weir requests it and keeps the request's header until the
 * reply arrives. Then the request is routed again like a new one: with
 * identity.known_clients_only, the reply determines which identity source applies. */
#ifndef WEIR_PROXY_QUOTA_WAIT_H
#define WEIR_PROXY_QUOTA_WAIT_H

#include "proxy/exchange.h"

enum quota_known {
    QUOTA_KNOWN,         /* `identity` and `client_limits` are final */
    QUOTA_PENDING,       /* exchange_quota_arrived() runs unless quota_wait_cancel() is called */
    QUOTA_CLIENT_DENIED, /* denied by quotas.unknown_client: deny */
    QUOTA_IDENTITY_BAD,  /* the identity source after an unknown id is malformed: `*why` */
    QUOTA_NO_MEMORY
};

/* Looks up the quota for `identity`, the result of identity_of(). With
 * identity.known_clients_only, an id without a row is replaced by the identity of the next
 * source. If the database has a row, `*room` is filled and `*client_limits` points to it;
 * otherwise `*client_limits` is unchanged. */
MUST_CHECK enum quota_known quota_wait_begin(struct exchange *x, const struct request_head *head,
                                             struct identity *identity, struct client_limits *room,
                                             const struct client_limits **client_limits, const char **why);
void quota_wait_cancel(struct exchange *x);

/* Continues the exchange when the quota has arrived; `head` is the header as received. In
 * exchange.c. May end the exchange. */
void exchange_quota_arrived(struct exchange *x, struct request_head *head, const struct framing *framing);

#endif
