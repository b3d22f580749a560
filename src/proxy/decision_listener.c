#include "proxy/decision_listener.h"

#include <stdlib.h>

#include "policy/identity.h"
#include "proxy/worker_state.h"

static bool may_ask(const struct exchange *x)
{
    struct address address;
    return identity_trusts(&x->policy->decisions.peers,
                           address_of_peer(&x->downstream->origin->peer, &address));
}

struct request_head *decision_head(struct exchange *x, struct request_head *asked,
                                   enum cause *cause, const char **why)
{
    struct worker *w = x->worker;

    *why = NULL;
    *cause = CAUSE_ASKER_NOT_TRUSTED;
    if (!may_ask(x))
        return NULL;
    *cause = CAUSE_NO_MEMORY;
    if (!w->original && !(w->original = malloc(sizeof *w->original)))
        return NULL;
    *cause = CAUSE_BAD_REQUEST;
    return original_request(x->policy->decisions.request_from, asked, w->original, why);
}
