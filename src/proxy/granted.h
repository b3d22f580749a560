/* granted.h - request headers that tell the server how many units were granted. */
#ifndef WEIR_PROXY_GRANTED_H
#define WEIR_PROXY_GRANTED_H

#include "proxy/exchange_state.h"

/* Appends the header of each limit of the rule that has one to a complete request head, with the
 * full cost as its value. `cost` is that of the request; 0: the rule's or the limits' own. */
void granted_append(struct exchange *x, struct text *head, int64_t cost);

/* Writes the granted units of the decision over the values in x->head. */
void granted_set(struct exchange *x);

#endif
