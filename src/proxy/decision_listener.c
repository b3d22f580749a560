#include "proxy/decision_listener.h"

#include "base/clock.h"
#include "base/log.h"
#include "policy/identity.h"
#include "proxy/worker_state.h"

static bool may_request_decision(const struct exchange *x)
{
    return identity_trusts(&x->policy->decisions.peers, &x->downstream->origin->peer);
}

/* Returns true if Host names the listener, as that of a browser would: with its port. Proxies pass
 * on the Host of their clients, which has the port of the proxy, if any. */
static bool names_listener(const struct policy *policy, struct slice host)
{
    const struct listen_settings *listener = policy->listen;
    struct slice port = host_port(host);
    uint64_t number;

    while (!listener->decides)
        listener++;
    return !address_is_unix(&listener->address) && slice_to_u64(port, UINT16_MAX, &number) &&
           htons((uint16_t)number) == listener->address.v4.sin_port;
}

/* Refuses requests of web pages of other sites (http/own_host.h). With REQUEST_FROM_FORWARDED, Host
 * is that of the listener. A page cannot set the fields that weir reads then, unless it is of the
 * same origin; else Host may be that of the request to decide on. Proxies pass on Origin and
 * Sec-Fetch-Site, so these are checked only if no proxy sent the request. */
static bool is_of_other_site(const struct exchange *x, const struct request_head *head)
{
    const struct decision_settings *settings = &x->policy->decisions;
    bool own = host_is_own(&settings->hosts, head->host);

    if (settings->request_from == REQUEST_FROM_FORWARDED)
        return head->host.n && !own;
    return names_listener(x->policy, head->host) &&
           (!own || !fields_are_of_own_page(&head->fields, head->host));
}

/* A proxy that reaches the listener by a name gets 403 for every request until it is listed. */
static void warn_of_host(const struct exchange *x, struct slice host)
{
    struct log_throttle *throttle = &x->worker->log_throttle[CAUSE_ASKER_NOT_TRUSTED];
    uint64_t suppressed;

    if (log_throttle_allows(throttle, clock_us(), &suppressed))
        log_warn("a decision request with Host \"%.*s\" is rejected with 403; if a proxy sent it, "
                 "add the name to decisions.hosts",
                 SLICE_ARG(host));
}

bool decision_head(struct exchange *x, struct request_head *head, enum cause *cause,
                   const char **why)
{
    enum request_from from = x->policy->decisions.request_from;

    *why = NULL;
    *cause = CAUSE_ASKER_NOT_TRUSTED;
    if (!may_request_decision(x))
        return false;
    *why = "Host is not an IP address, localhost or one of decisions.hosts, or a page of another "
           "site sent the request";
    if (is_of_other_site(x, head)) {
        warn_of_host(x, head->host);
        return false;
    }
    *cause = CAUSE_BAD_REQUEST;
    *why = "a header whose name differs only in punctuation from one that weir evaluates";
    if (policy_has_twin(x->policy, &head->fields))
        return false;
    if (!original_request(from, head, why))
        return false;
    *why = "X-Forwarded-For does not end with an address";
    return from != REQUEST_FROM_FORWARDED || forwarded_for_is_valid(&head->fields);
}
