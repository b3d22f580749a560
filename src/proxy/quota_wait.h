/* quota_wait.h - looks up the client's quota from a database, before LIMIT, if the policy has
 * quotas.
 *
 * If the quota is not in the cache, weir requests it, keeps the request, and the exchange waits in
 * phase QUOTA. With identity.known_clients_only, the reply determines which identity source
 * applies. */
#ifndef WEIR_PROXY_QUOTA_WAIT_H
#define WEIR_PROXY_QUOTA_WAIT_H

#include "proxy/exchange.h"

enum quota_known {
    QUOTA_KNOWN,         /* `identity` and `client_limits` are final */
    QUOTA_PENDING,       /* exchange_quota_known() runs unless quota_wait_cancel() is called */
    QUOTA_CLIENT_DENIED, /* denied by quotas.unknown_client: deny */
    QUOTA_IDENTITY_BAD,  /* the identity source after an unknown id is malformed: `why` */
    QUOTA_NO_MEMORY
};

struct quota_result {
    enum quota_known known;
    const struct client_limits *client_limits; /* &found, or NULL: the database has no row */
    struct client_limits found;
    const char *why;
};

/* Looks up the quota for `identity`, the result of identity_of(). With
 * identity.known_clients_only, an id without a row is replaced by the identity of the next
 * source. If the result is QUOTA_PENDING, the request's head, `framing`, `identity` and the
 * exchange's path were copied. */
void quota_wait_begin(struct exchange *x, const struct request_head *head,
                      const struct framing *framing, struct identity *identity,
                      struct quota_result *result);
/* Ends the wait, if any. */
void quota_wait_cancel(struct exchange *x);

/* Continues the exchange in phase QUOTA. In exchange_route.c. May end the exchange. */
void exchange_quota_known(struct exchange *x, struct request_head *head,
                          const struct framing *framing, struct identity *identity,
                          const struct quota_result *result);

#endif
