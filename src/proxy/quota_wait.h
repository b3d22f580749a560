/* quota_wait.h - what a database says of an exchange's client: the step between ROUTE and LIMIT where the policy has quotas.
 *
 * An id that nothing is known of yet is asked for, and the request's head is kept until the answer is there; then the request is
 * routed again, as if it had just come: with identity.known_clients_only the answer decides whose limits count. */
#ifndef WEIR_PROXY_QUOTA_WAIT_H
#define WEIR_PROXY_QUOTA_WAIT_H

#include "proxy/exchange.h"

enum quota_known {
    QUOTA_KNOWN,         /* `identity` and `terms` are final */
    QUOTA_PENDING,       /* exchange_quota_arrived() will run, unless quota_wait_cancel is called before */
    QUOTA_CLIENT_DENIED, /* quotas.unknown_client: deny */
    QUOTA_IDENTITY_BAD,  /* a source after an unknown id is malformed: `*why` */
    QUOTA_NO_MEMORY
};

/* `identity` is identity_of's, and becomes that of the next source where the id is nobody's. `*terms` are set to `room`, or left
 * alone where the database says nothing of the client. */
MUST_CHECK enum quota_known quota_wait_begin(struct exchange *x, const struct request_head *head,
                                             struct identity *identity, struct client_limits *room,
                                             const struct client_limits **client_limits, const char **why);
void quota_wait_cancel(struct exchange *x);

/* exchange.c: the answer is there; `head` as it came. */
void exchange_quota_arrived(struct exchange *x, struct request_head *head, const struct framing *framing);

#endif
