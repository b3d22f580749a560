/* query_identity.c - parses the client that an operator names, and describes its limits in
 * words. */
#include "admin/client_query.h"

bool client_query_identity(const struct policy *policy, struct slice text,
                           struct identity *identity, const char **why)
{
    if (!identity_parse(&policy->identity, text, identity, why))
        return false;
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
