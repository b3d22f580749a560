/* known.h - what a database says of an exchange's client: the step between ROUTE and LIMIT where the policy has quotas.
 *
 * An id that nothing is known of yet is asked for, and the request's head is kept until the answer is there; then the request is
 * routed again, as if it had just come: with identity.known_clients_only the answer decides whose limits count. */
#ifndef WEIR_PROXY_KNOWN_H
#define WEIR_PROXY_KNOWN_H

#include "proxy/exchange.h"

enum known {
    KNOWN,        /* `identity` and `terms` are final */
    KNOWN_LATER,  /* exchange_known() will run, unless exchange_unknow is called before */
    KNOWN_DENIED, /* quotas.unknown_client: deny */
    KNOWN_BAD,    /* a source after an unknown id is malformed: `*why` */
    KNOWN_NO_MEMORY
};

/* `identity` is identity_of's, and becomes that of the next source where the id is nobody's. `*terms` are set to `room`, or left
 * alone where the database says nothing of the client. */
MUST_CHECK enum known exchange_know(struct exchange *x, const struct request_head *head,
                                    struct identity *identity, struct client_terms *room,
                                    const struct client_terms **terms, const char **why);
void exchange_unknow(struct exchange *x);

/* exchange.c: the answer is there; `head` as it came. */
void exchange_known(struct exchange *x, struct request_head *head, const struct framing *framing);

#endif
