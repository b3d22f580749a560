/* request_headers.c - drops request headers that servers must not receive from this peer. */
#include "policy/identity.h"
#include "policy/identity_source.h"
#include "policy/policy.h"

bool read_headers_contain(const struct read_headers *headers, struct slice name)
{
    for (unsigned i = 0; i < headers->count; i++)
        if (slice_equal_nocase(headers->names[i], name))
            return true;
    return false;
}

/* Keeps headers that would not be forwarded from untrusted peers, if the policy evaluates them. */
static void keep_claims(const struct read_headers *headers, struct fields *fields)
{
    for (struct field *field = fields->at; field < fields->at + fields->count; field++)
        if (field->id == FIELD_PROXY_CLAIM && read_headers_contain(headers, field->name))
            field->id = FIELD_OTHER;
}

static void drop_identity(const struct identity_settings *settings, struct fields *fields)
{
    for (unsigned i = 0; i < settings->from_count; i++)
        if (settings->from[i].source->is_header)
            fields_drop_named(fields, slice_of(settings->from[i].name));
}

static void drop_own(const struct policy *policy, struct fields *fields)
{
    for (unsigned i = 0; i < policy->own_header_count; i++)
        fields_drop_named(fields, policy->own_headers[i]);
}

bool policy_has_twin(const struct policy *policy, const struct fields *fields)
{
    static const struct slice overrides[] = {SLICE("X-HTTP-Method-Override"),
                                             SLICE("X-HTTP-Method"), SLICE("X-Method-Override")};
    const struct read_headers *headers = &policy->read_headers;

    return (fields->odd_names || headers->has_odd_names) &&
           (fields_have_twin(fields, overrides, COUNT_OF(overrides)) ||
            fields_have_twin(fields, headers->names, headers->count));
}

void policy_sort_trailers(const struct policy *policy, struct fields *trailers)
{
    const struct read_headers *headers = &policy->read_headers;

    for (unsigned i = 0; i < headers->count; i++)
        fields_drop_named(trailers, headers->names[i]);
    if (headers->count)
        fields_drop_twins(trailers, headers->names, headers->count);
    drop_own(policy, trailers);
    drop_identity(&policy->identity, trailers);
}

void policy_sort_headers(const struct policy *policy, const struct identity *identity,
                         struct fields *fields)
{
    const struct read_headers *headers = &policy->read_headers;

    if (headers->has_proxy_claims)
        keep_claims(headers, fields);
    if (headers->count && (fields->odd_names || headers->has_odd_names))
        fields_drop_twins(fields, headers->names, headers->count);
    if (policy->own_header_count)
        drop_own(policy, fields);
    if (!identity->headers_trusted)
        drop_identity(&policy->identity, fields);
    if (!identity->peer_trusted && policy->identity.drops_client_ip_header)
        fields_drop_named(fields, slice_of(policy->identity.client_ip_header));
}
