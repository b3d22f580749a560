#include "proxy/decision_listener.h"

#include "policy/identity.h"
#include "proxy/worker_state.h"

static bool may_ask(const struct exchange *x)
{
    struct address address;
    return identity_trusts(&x->policy->decisions.peers,
                           address_of_peer(&x->downstream->origin->peer, &address));
}

bool decision_head(struct exchange *x, struct request_head *head, enum cause *cause,
                   const char **why)
{
    enum request_from from = x->policy->decisions.request_from;

    *why = NULL;
    *cause = CAUSE_ASKER_NOT_TRUSTED;
    if (!may_ask(x))
        return false;
    *cause = CAUSE_BAD_REQUEST;
    *why = "a header whose name differs only in punctuation from one that weir evaluates";
    if (policy_has_twin(x->policy, &head->fields))
        return false;
    if (!original_request(from, head, why))
        return false;
    *why = "X-Forwarded-For does not end with an address";
    return from != REQUEST_FROM_FORWARDED || forwarded_for_is_valid(&head->fields);
}
