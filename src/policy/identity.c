#include "policy/identity.h"

#include "base/text.h"
#include "policy/identity_internal.h"

/* --- address behind trusted proxies --- */

static bool is_trusted(const struct identity_settings *settings, const struct ip *ip)
{
    for (unsigned i = 0; i < settings->trusted_count; i++)
        if (ip_range_holds(&settings->trusted[i], ip))
            return true;
    return false;
}

bool identity_trusts(const struct identity_settings *settings, const struct peer *peer)
{
    return peer->has_ip ? is_trusted(settings, &peer->ip) : settings->trust_unix;
}

/* Parses an element of client_ip_header: an address, "ip:port", "[v6]" or "[v6]:port". */
static bool element_ip(struct slice element, struct ip *ip)
{
    const char *end = element.p + element.n, *close;

    if (element.n && element.p[0] == '[') {
        close = memchr(element.p, ']', element.n);
        if (!close || (close + 1 < end && close[1] != ':'))
            return false;
        struct slice inside = {element.p + 1, (size_t)(close - element.p) - 1};
        return memchr(inside.p, ':', inside.n) && ip_parse(inside, ip);
    }
    const char *colon = element.n ? memchr(element.p, ':', element.n) : NULL;
    bool one_colon = colon && !memchr(colon + 1, ':', (size_t)(end - colon - 1));
    return ip_parse(one_colon ? (struct slice){element.p, (size_t)(colon - element.p)} : element,
                    ip);
}

/* Removes the last element of a comma-separated list; skips empty ones (RFC 9110 section 5.6.1). */
static bool last_element(struct slice *rest, struct slice *element)
{
    while (rest->n) {
        const char *comma = memrchr(rest->p, ',', rest->n);
        const char *start = comma ? comma + 1 : rest->p;
        *element = slice_trim_ows((struct slice){start, (size_t)(rest->p + rest->n - start)});
        rest->n = comma ? (size_t)(comma - rest->p) : 0;
        if (element->n)
            return true;
    }
    return false;
}

/* Walks from right to left, since each trusted proxy vouches for the element to its left. Stops
 * after the first address that is not a trusted proxy, and before the first element that is not an
 * address. Returns true if the walk may continue in the previous field line. */
static bool walk_list(const struct identity_settings *settings, struct slice list,
                      struct identity *identity)
{
    struct slice element;
    struct ip ip;

    while (last_element(&list, &element)) {
        if (!element_ip(element, &ip))
            return false;
        identity->ip = ip;
        identity->has_ip = true;
        if (!is_trusted(settings, &ip))
            return false;
    }
    return true;
}

/* Multiple field lines form one list in their order (RFC 9110 section 5.3); walks it backwards. */
static void walk_client_ip_header(const struct identity_settings *settings,
                                  const struct fields *fields, struct identity *identity)
{
    struct slice name = slice_of(settings->client_ip_header);
    enum field_id id = field_id_of(name);

    for (unsigned i = fields->count; i > 0; i--) {
        const struct field *field = &fields->at[i - 1];
        bool same =
            id == FIELD_X_FORWARDED_FOR ? field->id == id : slice_equal_nocase(field->name, name);
        if (same && !walk_list(settings, field->value, identity))
            return;
    }
}

bool forwarded_for_is_valid(const struct fields *fields)
{
    struct slice element;
    struct ip ip;

    for (unsigned i = fields->count; i > 0; i--) {
        struct slice list = fields->at[i - 1].value;
        if (fields->at[i - 1].id == FIELD_X_FORWARDED_FOR)
            return last_element(&list, &element) && element_ip(element, &ip);
    }
    return false;
}

void identity_find_address(const struct identity_input *input, struct identity *identity)
{
    const struct identity_settings *settings = &input->policy->identity;
    const struct identity_peer *peer = &input->peer;

    identity->has_ip = peer->source->has_ip;
    identity->ip = peer->source->ip;
    identity->peer_trusted =
        peer->trusted || (!peer->unknown && identity_trusts(settings, peer->source));
    identity->headers_trusted = settings->headers_from_anyone || identity->peer_trusted;
    if (identity->peer_trusted)
        walk_client_ip_header(settings, input->fields, identity);
    identity->listed = identity->has_ip
                           ? address_table_find(&input->policy->addresses.table, &identity->ip)
                           : LISTED_NOT;
}

void identity_write_address(const struct identity_settings *settings, struct identity *identity)
{
    struct text text = text_over(identity->text, sizeof identity->text);

    text_literal(&text, "ip:");
    if (identity->has_ip) {
        struct ip_range group = identity_group(settings, &identity->ip);
        ip_range_format(&group, &text);
    } else {
        text_literal(&text, "unix");
    }
    identity->size = text.n;
}

/* --- the sources --- */

/* Returns true for ids of unknown clients, which are skipped unless a database may have them. */
static bool is_passed_over(const struct policy *policy, const struct identity *identity)
{
    return identity->is_id && policy->identity.known_clients_only && !policy->quotas.connection &&
           !policy_client(policy, identity);
}

static inline enum source_result try_source(const struct identity_search *search, unsigned i)
{
    const struct identity_from *from = &search->input->policy->identity.from[i];
    struct identity *identity = search->identity;

    if (!from->source->verified && !identity->headers_trusted)
        return SOURCE_NOT_TRUSTED;
    enum found found = from->source->find(search, from);
    identity->source = i;
    identity->is_id = from->source->is_id;
    if (found == FOUND_BAD)
        return SOURCE_BAD;
    if (identity->needs_content)
        return SOURCE_NEEDS_CONTENT;
    if (found == FOUND)
        return is_passed_over(search->input->policy, identity) ? SOURCE_UNKNOWN : SOURCE_USED;
    return SOURCE_ABSENT;
}

enum source_result identity_try(const struct identity_input *input, unsigned source,
                                struct identity *identity, const char **why)
{
    const struct identity_search search = {input, identity, why};

    identity->needs_content = false;
    identity->token_state = TOKEN_UNREAD;
    return try_source(&search, source);
}

void identity_forget_cached_token(struct identity *identity)
{
    if (identity->token_state == TOKEN_VALID)
        identity->token_state = TOKEN_UNREAD;
}

/* Uses the first source from index `first` on that has a value. */
static inline bool take_source(const struct identity_input *input, unsigned first,
                               struct identity *identity, const char **why)
{
    const struct identity_settings *settings = &input->policy->identity;
    const struct identity_search search = {input, identity, why};

    identity->needs_content = false;
    identity_forget_cached_token(identity);
    for (unsigned i = first; i < settings->from_count; i++) {
        enum source_result result = try_source(&search, i);
        if (result == SOURCE_BAD)
            return false;
        if (result == SOURCE_USED)
            return true;
        if (result == SOURCE_NEEDS_CONTENT)
            break;
    }
    identity->source = settings->from_count;
    identity->is_id = false;
    identity_write_address(settings, identity);
    return true;
}

bool identity_of(const struct identity_input *input, struct identity *identity, const char **why)
{
    identity_find_address(input, identity);
    identity->token_counted = false;
    identity->token_state = TOKEN_UNREAD;
    return take_source(input, 0, identity, why);
}

bool identity_of_content(const struct identity_input *input, struct identity *identity,
                         const char **why)
{
    return take_source(input, 0, identity, why);
}

bool identity_next(const struct identity_input *input, struct identity *identity, const char **why)
{
    return take_source(input, identity->source + 1, identity, why);
}

/* With known_clients_only, a client of a later source counts if the database does not have this
 * id. Returns true if that one is blocked, or cannot be determined. */
static bool may_be_blocked(const struct identity_input *input, struct identity *identity)
{
    const struct policy *policy = input->policy;
    struct identity next = *identity;
    const char *why;

    if (!policy->blocks_clients || !policy->identity.known_clients_only)
        return false;
    while (next.is_id && !policy_client(policy, &next)) {
        bool good = identity_next(input, &next, &why);
        identity->token_counted = next.token_counted;
        if (!good || policy_blocks(policy, &next))
            return true;
    }
    return false;
}

bool identity_needs_quota(const struct identity_input *input, const struct rule *rule,
                          struct identity *identity)
{
    return identity->is_id && identity->listed != LISTED_ALLOWED &&
           (rule->limit_count || may_be_blocked(input, identity));
}
