/* granted.h - headers that state, for the server or the requesting proxy, how many units were
 * granted. Only for policies with such headers: policy.has_granted_headers. */
#ifndef WEIR_PROXY_GRANTED_H
#define WEIR_PROXY_GRANTED_H

#include "proxy/exchange_state.h"

/* Appends the header of each limit of the rule that has one to a complete request head, with the
 * full cost as its value. */
void granted_append(struct exchange *x, struct text *head);

/* Writes the granted units of the decision over the values in x->request.head. */
void granted_set(struct exchange *x);

/* Writes the same headers, with the granted units, as fields of the decision listener's response
 * to an admitted request. */
void granted_fields_write(struct text *out, const struct exchange *x);

#endif
