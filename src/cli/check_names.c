/* check_names.c - part of `weir check`: checks that the host names of upstream servers and of
 * Redis resolve. */
#include <stdlib.h>

#include "base/memory.h"
#include "cli/cli.h"
#include "net/resolver.h"
#include "policy/policy.h"

/* One host name during its lookup. */
struct name_check {
    const struct policy *policy;
    const struct upstream *upstream; /* NULL: Redis */
    const struct upstream_server *server;
    unsigned *left;
};

static void report_name(void *context, const struct resolver_answer *answer)
{
    const struct name_check *name_check = context;
    const char *why = answer->why ? answer->why : "it has no address";

    (*name_check->left)--;
    if (answer->count)
        return;
    if (!name_check->upstream) {
        fprintf(stderr,
                "%s: warning: redis.address: %s: %s; on_failure applies until it is resolved\n",
                name_check->policy->file, name_check->policy->redis.address_text, why);
        return;
    }
    const struct position position = name_check->server->position;
    fprintf(stderr,
            "%s:%u:%u: warning: upstreams.%s: %s: %s; requests get 503 until it is resolved\n",
            name_check->policy->file, position.line, position.column, name_check->upstream->name,
            name_check->server->text, why);
}

static bool looks_up_redis(const struct policy *policy)
{
    return policy->redis.host && policy_needs_redis(policy);
}

static void look_up_all(struct resolver *resolver, const struct policy *policy,
                        struct name_check *name_check, unsigned *left)
{
    for (unsigned u = 0; u < policy->upstream_count; u++)
        for (unsigned s = 0; s < policy->upstreams[u].server_count; s++) {
            const struct upstream_server *server = &policy->upstreams[u].servers[s];
            if (!server_is_name(server))
                continue;
            *name_check = (struct name_check){policy, &policy->upstreams[u], server, left};
            if (resolver_look_up(resolver, server->host, report_name, name_check))
                (*left)++;
            name_check++;
        }
    if (!looks_up_redis(policy))
        return;
    *name_check = (struct name_check){policy, NULL, NULL, left};
    if (resolver_look_up(resolver, policy->redis.host, report_name, name_check))
        (*left)++;
}

void cli_check_names(const struct policy *policy)
{
    unsigned count = policy_name_count(policy) + looks_up_redis(policy), left = 0;
    struct event_base *base = count ? event_base_new() : NULL;
    struct resolver *resolver = base ? resolver_new(base, &policy->resolver) : NULL;

    if (resolver) {
        struct name_check *name_check = xcalloc(count, sizeof *name_check);
        look_up_all(resolver, policy, name_check, &left);
        while (left && event_base_loop(base, EVLOOP_ONCE) == 0)
            ;
        resolver_free(resolver);
        (void)event_base_loop(base, EVLOOP_NONBLOCK);
        free(name_check);
    }
    if (base)
        event_base_free(base);
}
