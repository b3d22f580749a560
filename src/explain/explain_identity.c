/* explain_identity.c - which sources of the identity were tried, and why each does not apply. */
#include "explain/explainer.h"
#include "policy/identity_source.h"
#include "proxy/route.h"

/* The address is not that of the peer. */
static bool is_from_header(const struct explainer *m, const struct exchange *x)
{
    const struct peer *peer = &x->downstream->origin->peer;

    if (!m->identity.has_ip || !peer->has_ip)
        return m->identity.has_ip;
    return memcmp(&peer->ip, &m->identity.ip, sizeof peer->ip) != 0;
}

static struct tried_source try(const struct identity_input *input, unsigned i, unsigned last,
                               struct identity *identity)
{
    struct tried_source tried = {.from = &input->policy->identity.from[i]};

    tried.result = identity_try(input, i, identity, &tried.why);
    if (input->content)
        tried.content = input->content->state;
    if (source_is_token(tried.from->source)) {
        tried.token = identity->token_state;
        if (tried.result == SOURCE_ABSENT && tried.token == TOKEN_INVALID)
            tried.why = identity->token_fault;
    }
    tried.not_in_database = tried.result == SOURCE_USED && i != last;
    if (tried.not_in_database)
        tried.result = SOURCE_UNKNOWN;
    return tried;
}

/* The search has ended without a client. */
static bool is_end(const struct tried_source *tried)
{
    return tried->result == SOURCE_BAD || tried->result == SOURCE_NEEDS_CONTENT;
}

void explain_identity(struct explainer *m, struct exchange *x)
{
    const struct identity_settings *settings = &m->policy->identity;
    struct tried_source *tried = arena_zeroed(&m->arena, IDENTITY_FROM_MAX, sizeof *tried);
    struct identity identity;
    const char *why;

    struct identity_input input = route_identity_input(x, &m->received);
    if (settings->paths)
        route_add_content(x, &input);
    (void)!identity_of(&input, &identity, &why);
    m->now.ip_from_header = is_from_header(m, x);
    m->now.ip_header_given =
        fields_next_named(&m->received.fields, slice_of(settings->client_ip_header), NULL) != NULL;
    m->now.sources = tried;
    for (unsigned i = 0; i < settings->from_count; i++) {
        tried[i] = try(&input, i, m->identity.source, &identity);
        m->now.source_count = i + 1;
        if (tried[i].result == SOURCE_USED || is_end(&tried[i]))
            break;
    }
    m->now.has_client =
        x->identity_size > 0 && !(m->now.source_count && is_end(&tried[m->now.source_count - 1]));
}
