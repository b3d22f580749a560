#include "policy/identity.h"

#include "base/text.h"

/* --- address behind trusted proxies --- */

static bool is_trusted(const struct identity_settings *settings, const struct ip *ip)
{
    for (unsigned i = 0; i < settings->trusted_count; i++)
        if (ip_range_holds(&settings->trusted[i], ip))
            return true;
    return false;
}

bool identity_trusts(const struct identity_settings *settings, const struct address *peer)
{
    struct ip ip;
    return ip_of_address(peer, &ip) ? is_trusted(settings, &ip) : settings->trust_unix;
}

/* Parses an element of X-Forwarded-For: an address, "ip:port", "[v6]" or "[v6]:port". */
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
    return ip_parse(one_colon ? (struct slice){element.p, (size_t)(colon - element.p)} : element, ip);
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
static bool walk_list(const struct identity_settings *settings, struct slice list, struct identity *identity)
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
static void walk_forwarded_for(const struct identity_settings *settings, const struct fields *fields,
                               struct identity *identity)
{
    for (unsigned i = fields->count; i > 0; i--) {
        const struct field *field = &fields->at[i - 1];
        if (field->id == FIELD_X_FORWARDED_FOR && !walk_list(settings, field->value, identity))
            return;
    }
}

static void find_address(const struct identity_settings *settings, const struct identity_peer *peer,
                         const struct fields *fields, struct identity *identity)
{
    identity->has_ip = ip_of_address(peer->address, &identity->ip);
    identity->peer_trusted = !peer->unknown && identity_trusts(settings, peer->address);
    identity->headers_believed = settings->headers_from_anyone || identity->peer_trusted;
    if (identity->peer_trusted && fields_have(fields, FIELD_X_FORWARDED_FOR))
        walk_forwarded_for(settings, fields, identity);
}

/* --- the text --- */

void identity_write_address(const struct identity_settings *settings, struct identity *identity)
{
    struct text text = text_over(identity->text, sizeof identity->text);

    text_literal(&text, "ip:");
    if (!identity->has_ip) {
        text_literal(&text, "unix");
    } else if (ip_is_v4(&identity->ip)) {
        ip_format(&identity->ip, &text);
    } else {
        struct ip_range group = {ip_masked(&identity->ip, settings->ipv6_prefix), settings->ipv6_prefix};
        ip_range_format(&group, &text);
    }
    identity->size = text.n;
}

enum found { FOUND_NONE, FOUND_ID, FOUND_BAD };

static enum found bad(const char **why, const char *words)
{
    *why = words;
    return FOUND_BAD;
}

static enum found find_id(const struct identity_from *from, const struct fields *fields,
                          struct identity *identity, const char **why)
{
    bool known = from->field != FIELD_OTHER;
    struct slice name = known ? SLICE_NONE : slice_of(from->header);
    const struct field *field =
        known ? fields_find(fields, from->field) : fields_next_named(fields, name, NULL);
    if (!field)
        return FOUND_NONE;
    if (known ? fields_repeat(fields, from->field) : fields_next_named(fields, name, field) != NULL)
        return bad(why, "the identity header comes twice");
    if (field_is_named_away(field))
        return bad(why, "Connection names the identity header");
    if (field->value.n == 0)
        return FOUND_NONE;
    if (field->value.n > CLIENT_ID_MAX)
        return bad(why, "the identity header is longer than 256 bytes");
    if (slice_has_control_bytes(field->value))
        return bad(why, "the identity header holds control bytes");
    struct text text = text_over(identity->text, sizeof identity->text);
    text_literal(&text, "id:");
    text_put(&text, field->value);
    identity->size = text.n;
    identity->from_header = true;
    return FOUND_ID;
}

/* Returns true for ids of unknown clients, which are skipped unless a database may know them. */
static bool is_passed_over(const struct policy *policy, const struct identity *identity)
{
    return policy->identity.known_clients_only && !policy->quotas.connection &&
           !policy_client(policy, identity);
}

/* Uses the first source from index `first` on that has a value. */
static bool take_source(const struct policy *policy, const struct fields *fields, unsigned first,
                        struct identity *identity, const char **why)
{
    const struct identity_settings *settings = &policy->identity;
    unsigned i = first;

    identity->from_header = false;
    for (; i < settings->from_count && settings->from[i].source == IDENTITY_HEADER; i++) {
        if (!identity->headers_believed)
            continue;
        enum found found = find_id(&settings->from[i], fields, identity, why);
        identity->source = i;
        if (found == FOUND_ID && is_passed_over(policy, identity))
            identity->from_header = false;
        else if (found != FOUND_NONE)
            return found == FOUND_ID;
    }
    identity->source = i;
    identity_write_address(settings, identity);
    return true;
}

bool identity_of(const struct policy *policy, const struct identity_peer *peer, const struct fields *fields,
                 struct identity *identity, const char **why)
{
    find_address(&policy->identity, peer, fields, identity);
    identity->listed =
        identity->has_ip ? address_table_find(&policy->addresses.table, &identity->ip) : LISTED_NOT;
    return take_source(policy, fields, 0, identity, why);
}

bool identity_next(const struct policy *policy, const struct fields *fields, struct identity *identity,
                   const char **why)
{
    return take_source(policy, fields, identity->source + 1, identity, why);
}
