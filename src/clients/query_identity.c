/* query_identity.c - parses the client that an operator names, and describes its limits in
 * words. */
#include "base/text.h"
#include "clients/client_query.h"

static bool read_id(struct slice id, struct identity *identity, const char **why)
{
    struct text text = text_over(identity->text, sizeof identity->text);

    if (id.n == 0 || id.n > CLIENT_ID_MAX) {
        *why = "an id has 1 to 256 bytes";
        return false;
    }
    if (slice_has_control_bytes(id)) {
        *why = "an id holds no control bytes";
        return false;
    }
    text_literal(&text, "id:");
    text_put(&text, id);
    identity->size = text.n;
    identity->from_header = true;
    return true;
}

/* Parses an IP address, or its group as identity_of() writes it. */
static bool read_ip(const struct policy *policy, struct slice address, struct identity *identity)
{
    unsigned prefix = policy->identity.ipv6_prefix;
    struct ip_range range;
    const char *why;

    if (ip_parse(address, &identity->ip))
        return true;
    if (!ip_range_parse(address, &range, &why) || range.bits != prefix || ip_is_v4(&range.ip))
        return false;
    identity->ip = range.ip;
    return true;
}

bool client_query_identity(const struct policy *policy, struct slice text, struct identity *identity,
                           const char **why)
{
    *identity = (struct identity){0};
    if (slice_starts_with(text, SLICE("id:")))
        return read_id((struct slice){text.p + 3, text.n - 3}, identity, why);
    if (!slice_starts_with(text, SLICE("ip:")))
        return read_id(text, identity, why);
    struct slice address = {text.p + 3, text.n - 3};
    identity->has_ip = !slice_equal(address, SLICE("unix"));
    if (identity->has_ip && !read_ip(policy, address, identity)) {
        *why = memchr(address.p, '/', address.n)
                   ? "a range of addresses is no client; name one address (behind \"ip:\")"
                   : "behind \"ip:\" stands an IPv4 or IPv6 address, or \"unix\"";
        return false;
    }
    identity_write_address(&policy->identity, identity);
    if (identity->has_ip)
        identity->listed = address_table_find(&policy->addresses.table, &identity->ip);
    return true;
}

const char *client_query_limits_text(const struct client_limits *client_limits)
{
    if (!client_limits)
        return "default";
    switch (client_limits->quota) {
    case QUOTA_PROHIBITED: return "prohibited";
    case QUOTA_UNLIMITED: return "unlimited";
    case QUOTA_AS_WRITTEN: break;
    }
    return client_limits->each      ? "quota"
           : client_limits->plan    ? "plan"
           : client_limits->numbers ? "quota"
                                    : "default";
}
