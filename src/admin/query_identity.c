/* query_identity.c - parses the client that an operator names, and describes its limits and the
 * result in words. */
#include "admin/client_query_internal.h"
#include "policy/descriptor_name.h"

/* Returns a name with the bytes that text_json() has replaced in it. Names that are longer than
 * `room` are none of weir's, and returned unchanged. */
static struct slice name_of_json(struct slice name, char *bytes, size_t room)
{
    struct text out = text_over(bytes, room);

    for (size_t i = 0; i < name.n; i++) {
        int byte = text_json_byte((struct slice){name.p + i, name.n - i});
        text_char(&out, byte < 0 ? name.p[i] : (char)byte);
        i += byte < 0 ? 0 : TEXT_JSON_BYTE - 1;
    }
    return out.failed ? name : text_slice(&out);
}

bool client_query_identity(const struct policy *policy, struct slice text,
                           struct identity *identity, const char **why)
{
    char bytes[8 * IDENTITY_TEXT_MAX];

    text = name_of_json(text, bytes, sizeof bytes);
    if (!identity_parse(&policy->identity, text, identity, why))
        return false;
    if (identity->has_ip)
        identity->listed = address_table_find(&policy->addresses.table, &identity->ip);
    return true;
}

static const char *why_unlimited(const struct query_descriptor *descriptor,
                                 const struct parsed_descriptor *parsed, bool has_domain)
{
    const struct descriptor_match *match = &descriptor->match;

    if (parsed->hashed)
        return "the name is a hash; only the whole name shows them";
    return !has_domain                      ? "the policy has no such domain"
           : !match->entry                  ? "no entry of the domain matches this descriptor"
           : descriptor_is_unlimited(match) ? "the entry of this descriptor is unlimited"
           : descriptor_limit_count(match)  ? NULL
                                            : "the entry of this descriptor has no limit";
}

/* Sets the text to the name that keys and grants have, whatever is encoded in `text`. */
static const char *read_descriptor(const struct policy *policy, struct slice text,
                                   struct identity *identity, struct query_descriptor *descriptor)
{
    struct parsed_descriptor parsed;
    struct descriptor_name name;
    const char *why = descriptor_name_parse(text, &parsed);

    if (why)
        return why;
    const struct rate_limit_domain *domain =
        rate_limit_domain(&policy->rate_limit_service, parsed.domain);
    if (parsed.hashed) {
        if (text.n > sizeof name.text || slice_has_control_bytes(text))
            return "the name of a hashed descriptor is longer than 256 bytes, or has control bytes";
        memcpy(name.text, text.p, name.size = text.n);
    } else {
        if (domain)
            descriptor_match(domain, &parsed.descriptor, &descriptor->match);
        descriptor_name_write(parsed.domain, &parsed.descriptor, &descriptor->match, &name);
    }
    memcpy(identity->text, name.text, identity->size = name.size);
    descriptor->unlimited = why_unlimited(descriptor, &parsed, domain != NULL);
    return NULL;
}

_Static_assert(DESCRIPTOR_NAME_MAX <= (int)IDENTITY_TEXT_MAX, "a name fits");

bool client_query_named(const struct policy *policy, struct slice text, struct identity *identity,
                        struct query_descriptor *descriptor, const char **why)
{
    *descriptor = (struct query_descriptor){.is_one = policy->rate_limit_service.is_set &&
                                                      descriptor_name_is_one(text)};
    if (!descriptor->is_one)
        return client_query_identity(policy, text, identity, why);
    *identity = (struct identity){.is_id = false};
    *why = read_descriptor(policy, text, identity, descriptor);
    return !*why;
}

/* Returns true if neither the policy nor the database has the id, and
 * identity.known_clients_only then counts the client by its address. A GRANT does not read the
 * database's row. */
static bool is_unknown_id(const struct client_query *q)
{
    return q->policy->identity.known_clients_only && q->identity->is_id &&
           !policy_client(q->policy, q->identity) &&
           (!q->policy->quotas.connection || (q->result.row_cached && !q->result.row.present));
}

/* Returns true if there is a grant, but every request of the client gets 403. */
static bool is_granted_but_blocked(const struct client_query *q)
{
    return q->result.granted && q->result.quota != GRANT_NONE && !q->match &&
           (q->identity->listed == LISTED_BLOCKED || policy_blocks(q->policy, q->identity));
}

unsigned client_query_warnings(const struct client_query *q,
                               const struct query_descriptor *descriptor,
                               const char *found[static CLIENT_QUERY_WARNINGS_MAX])
{
    bool inspects = q->kind == CLIENT_QUERY_INSPECT, resets = q->kind == CLIENT_QUERY_RESET;
    unsigned count = 0;

    if (q->result.cut)
        found[count++] = resets ? "Redis has more keys than could be scanned: some may remain; try "
                                  "again"
                                : "Redis has more keys than could be scanned: some limits counted "
                                  "per several attributes may be missing";
    if (!inspects && !q->result.notified)
        found[count++] =
            resets ? "Redis did not accept the message to the running weirs (is this user allowed "
                     "to PUBLISH?): they may reject for up to one more second"
                   : "Redis did not accept the message to the running weirs (is this user allowed "
                     "to PUBLISH?): the grant may take some seconds to apply";
    if (q->result.grant_unread)
        found[count++] = CLIENT_QUERY_GRANT_UNREAD;
    if (is_granted_but_blocked(q))
        found[count++] = "a blocked client: every request gets 403, and a grant has no effect";
    else if (!resets && is_unknown_id(q))
        found[count++] = "an unknown id: with identity.known_clients_only it is counted by "
                         "address, and a grant has no effect";
    if (!resets && descriptor->unlimited)
        found[count++] = descriptor->unlimited;
    return count;
}

const char *client_query_limits_text(const struct client_limits *client_limits)
{
    if (!client_limits)
        return "default";
    switch (client_limits->quota) {
    case QUOTA_PROHIBITED: return client_limits->blocked ? "blocked" : "prohibited";
    case QUOTA_UNLIMITED: return "unlimited";
    case QUOTA_AS_WRITTEN: break;
    }
    return client_limits->each      ? "quota"
           : client_limits->plan    ? "plan"
           : client_limits->numbers ? "quota"
                                    : "default";
}
