/* check_names.c - part of `weir check`: checks that the host names of upstream servers and of
 * Redis resolve. */
#include <stdlib.h>

#include "base/memory.h"
#include "cli/cli.h"
#include "net/resolver.h"
#include "policy/policy.h"

/* One host name during its lookup. */
struct asked {
    const struct policy *policy;
    const struct upstream *upstream; /* NULL: Redis */
    const struct upstream_server *server;
    unsigned *left;
    FILE *report;
};

static void answered(void *context, const struct resolver_answer *answer)
{
    const struct asked *asked = context;
    const char *why = answer->why ? answer->why : "it has no address";

    (*asked->left)--;
    if (answer->count)
        return;
    if (!asked->upstream) {
        fprintf(asked->report,
                "%s: warning: redis.address: %s: %s; on_failure applies until it is resolved\n",
                asked->policy->file, asked->policy->redis.address_text, why);
        return;
    }
    const struct position position = asked->server->position;
    fprintf(asked->report,
            "%s:%u:%u: warning: upstreams.%s: %s: %s; requests get 503 until it is resolved\n",
            asked->policy->file, position.line, position.column, asked->upstream->name,
            asked->server->text, why);
}

static bool asks_for_redis(const struct policy *policy)
{
    return policy->redis.host && policy_needs_redis(policy);
}

static void ask_all(struct resolver *resolver, const struct policy *policy, struct asked *asked,
                    unsigned *left, FILE *report)
{
    for (unsigned u = 0; u < policy->upstream_count; u++)
        for (unsigned s = 0; s < policy->upstreams[u].server_count; s++) {
            const struct upstream_server *server = &policy->upstreams[u].servers[s];
            if (!server_is_name(server))
                continue;
            *asked = (struct asked){policy, &policy->upstreams[u], server, left, report};
            if (resolver_ask(resolver, server->host, answered, asked))
                (*left)++;
            asked++;
        }
    if (!asks_for_redis(policy))
        return;
    *asked = (struct asked){policy, NULL, NULL, left, report};
    if (resolver_ask(resolver, policy->redis.host, answered, asked))
        (*left)++;
}

void cli_check_names(const struct policy *policy, FILE *report)
{
    unsigned count = policy_name_count(policy) + asks_for_redis(policy), left = 0;
    struct event_base *base = count ? event_base_new() : NULL;
    struct resolver *resolver = base ? resolver_new(base, &policy->resolver) : NULL;

    if (resolver) {
        struct asked *asked = xcalloc(count, sizeof *asked);
        ask_all(resolver, policy, asked, &left, report);
        while (left && event_base_loop(base, EVLOOP_ONCE) == 0)
            ;
        resolver_free(resolver);
        (void)event_base_loop(base, EVLOOP_NONBLOCK);
        free(asked);
    }
    if (base)
        event_base_free(base);
}
