#include "limit/key.h"

#include "base/hash.h"
#include "http/credentials.h"
#include "policy/descriptor_name.h"
#include "policy/identity_source.h"

/* One value of a key before escaping: KIND, then up to two pieces. */
struct key_part {
    struct slice kind; /* including its colon */
    struct slice first, second;
};

/* --- Escaping --------------------------------------------------------------------------------- */

static bool must_escape(unsigned char c)
{
    static const bool table[256] = {
        [0 ... 0x1f] = true, ['%'] = true, ['{'] = true, ['}'] = true, [0x7f] = true};
    return table[c];
}

static inline void escape(struct text *out, struct slice s)
{
    if (s.n == 0) /* s.p may be NULL */
        return;
    const char *end = s.p + s.n, *start = s.p, *p = start;

    for (;; start = ++p) {
        while (p < end && !must_escape((unsigned char)*p))
            p++;
        text_put(out, (struct slice){start, (size_t)(p - start)});
        if (p == end)
            return;
        text_percent(out, (unsigned char)*p);
    }
}

static struct slice cut_value(struct slice s)
{
    return s.n > KEY_VALUE_MAX ? (struct slice){s.p, KEY_VALUE_MAX} : s;
}

static void write_part(struct text *out, const struct key_part *part)
{
    text_put(out, part->kind);
    escape(out, cut_value(part->first));
    escape(out, cut_value(part->second));
}

/* --- The values ------------------------------------------------------------------------------- */

/* Formats the address as identity_of() does: clients without an id get the same text. */
static struct slice ip_value(const struct policy *policy, const struct identity *identity,
                             struct text *scratch)
{
    if (!identity->has_ip)
        return SLICE("unix");
    struct ip_range group = identity_group(&policy->identity, &identity->ip);
    ip_range_format(&group, scratch);
    return text_slice(scratch);
}

/* Lower case, without the port and a trailing dot, so that every spelling of a host is counted
 * once. */
static struct slice host_value(struct slice host, struct text *scratch)
{
    const char *colon = host.n ? memrchr(host.p, ':', host.n) : NULL;

    if (colon && !memchr(colon, ']', host.n - (size_t)(colon - host.p)))
        host.n = (size_t)(colon - host.p);
    if (host.n && host.p[host.n - 1] == '.')
        host.n--;
    host = cut_value(host);
    for (size_t i = 0; i < host.n; i++)
        text_char(scratch, ascii_lower(host.p[i]));
    return text_slice(scratch);
}

/* Returns the only field of this name that is forwarded to the server. If there are several, it
 * is unknown which one the server uses, so such requests count as requests without the field. */
static const struct field *only_field(const struct fields *fields, struct slice name)
{
    const struct field *field = fields ? fields_next_named(fields, name, NULL) : NULL;
    bool good = field && !fields_next_named(fields, name, field) && !field_is_named_away(field);
    return good ? field : NULL;
}

/* Headers of peers that are not trusted count as missing, as identity headers do: else every client
 * could invent values. */
static struct slice header_value(const struct limit_facts *facts, const char *name)
{
    const struct field *field =
        facts->identity->headers_trusted ? only_field(facts->fields, slice_of(name)) : NULL;
    return field ? field->value : (struct slice){"", 0};
}

static struct key_part key_part(const struct policy *policy, const struct limit_part *per,
                                const struct limit_facts *facts, struct text *scratch)
{
    struct key_part part = {SLICE(""), SLICE(""), SLICE("")};

    switch (per->per) {
    case PER_CLIENT: part.first = identity_text(facts->identity); break;
    case PER_IP:
        part.kind = SLICE("ip:");
        part.first = ip_value(policy, facts->identity, scratch);
        break;
    case PER_ROUTE: part.kind = SLICE("route:"), part.first = slice_of(facts->rule->name); break;
    case PER_METHOD: part.kind = SLICE("method:"), part.first = facts->method; break;
    case PER_HOST: part.kind = SLICE("host:"), part.first = host_value(facts->host, scratch); break;
    case PER_ALL: part.first = SLICE("all"); break;
    case PER_HEADER:
        part.kind = SLICE("header:");
        text_put(scratch, slice_of(per->name));
        text_char(scratch, ':');
        part.second = header_value(facts, per->name);
        if (value_may_be_trimmed(part.second) ||
            credentials_split(slice_of(per->name), &part.second, scratch))
            part.second = SLICE_NONE;
        part.first = text_slice(scratch);
        part.second = identity_short_value(&policy->identity, part.second, scratch);
        break;
    case PER_VALUE:
        part.kind = SLICE("value:");
        text_put(scratch, slice_of(per->written));
        text_char(scratch, ':');
        part.first = text_slice(scratch);
        part.second = key_value(facts->values, per->value);
        break;
    case PER_JSON:
        part.kind = SLICE("json:");
        text_put(scratch, slice_of(per->name));
        text_char(scratch, ':');
        part.first = text_slice(scratch);
        part.second = facts->json ? json_values_text(facts->json, per->json) : SLICE_NONE;
        part.second = identity_short_value(&policy->identity, part.second, scratch);
        break;
    }
    return part;
}

/* --- The key ---------------------------------------------------------------------------------- */

size_t key_size_max(const struct policy *policy, const struct limit *limit)
{
    const size_t longest_kind = sizeof ":{method:}", escaped = 3;
    size_t size = strlen(policy->redis.key_prefix) + sizeof ":l:" + strlen(limit->name);

    for (unsigned i = 0; i < limit->per_count; i++) /* a field's name and value, or one value */
        size += longest_kind + escaped * KEY_VALUE_MAX * (limit->per[i].per >= PER_HEADER ? 2 : 1);
    return size;
}

static void write_tag(struct text *out, const struct policy *policy, const struct limit_part *per,
                      const struct limit_facts *facts)
{
    char bytes[1024];
    struct text scratch = text_over(bytes, sizeof bytes);
    struct key_part part = key_part(policy, per, facts, &scratch);

    text_literal(out, ":{");
    write_part(out, &part);
    text_char(out, '}');
}

void key_write(struct text *out, const struct policy *policy, const struct limit *limit,
               const struct limit_facts *facts, struct slice *client)
{
    bool by_client = limit->per[0].per == PER_CLIENT;
    size_t start = out->n;

    if (by_client && client->n)
        text_put(out, *client);
    else {
        text_put(out, slice_of(policy->redis.key_prefix));
        write_tag(out, policy, &limit->per[0], facts);
    }
    if (by_client)
        *client = (struct slice){out->p + start, out->n - start};
    text_literal(out, ":l:");
    text_put(out, slice_of(limit->name));
    for (unsigned i = 1; i < limit->per_count; i++)
        write_tag(out, policy, &limit->per[i], facts);
}

const char *limit_key_name(const struct limit *limit)
{
    static const char *const units[UNIT_COUNT] = {
        [UNIT_SECOND] = "unit:second", [UNIT_MINUTE] = "unit:minute", [UNIT_HOUR] = "unit:hour",
        [UNIT_DAY] = "unit:day",       [UNIT_MONTH] = "unit:month",   [UNIT_YEAR] = "unit:year",
        [UNIT_WEEK] = "unit:week"};

    return limit->rate_unit ? units[limit->rate_unit] : limit->name;
}

void key_write_descriptor(struct text *out, const struct policy *policy, const struct limit *limit,
                          struct slice name)
{
    text_put(out, slice_of(policy->redis.key_prefix));
    text_char(out, ':');
    key_write_tag(out, name);
    text_literal(out, ":l:");
    text_put(out, slice_of(limit_key_name(limit)));
}

size_t key_descriptor_size_max(const struct policy *policy)
{
    size_t longest = sizeof "unit:minute";

    for (unsigned i = 0; i < policy->limit_count; i++)
        if (strlen(policy->limits[i].name) > longest)
            longest = strlen(policy->limits[i].name);
    return strlen(policy->redis.key_prefix) + 1 + 3 * DESCRIPTOR_NAME_MAX + 2 +
           sizeof ":l:" + longest;
}

void key_write_tag(struct text *out, struct slice client)
{
    text_char(out, '{');
    escape(out, cut_value(client));
    text_char(out, '}');
}

void key_write_quota(struct text *out, const char *prefix, struct slice identity)
{
    text_put(out, slice_of(prefix));
    text_literal(out, ":{");
    escape(out, identity);
    text_literal(out, "}:q");
}

/* --- Repeats ---------------------------------------------------------------------------------- */

struct slice key_repeat_id(const struct limit *limit, const struct fields *fields)
{
    const struct field *field = only_field(fields, slice_of(limit->dedup.header));

    if (!field || field->value.n > KEY_REPEAT_ID_MAX)
        return SLICE_NONE;
    return field->value;
}

/* Writes 32 hex digits that identify client, host, method and path, the same in every weir.
 * SipHash under a known key: finding two paths with the same hash takes about 2^64 tries and
 * gains only free repeats of one request with the other. */
static void write_target_hash(struct text *out, const struct limit_facts *facts)
{
    struct hash_key key = {0};
    uint64_t hash[2];

    hash_key_mix(
        &key, identity_text(facts->identity)); /* several clients may share a limit and its key */
    hash_key_mix(&key, facts->host);
    hash_key_mix(&key, facts->method);
    hash_slice_128(&key, facts->path, hash);
    text_hex_fixed(out, hash[0], 16);
    text_hex_fixed(out, hash[1], 16);
}

void key_write_repeat(struct text *out, struct slice key, const struct limit_facts *facts,
                      struct slice id)
{
    text_put(out, key);
    text_literal(out, ":d:");
    write_target_hash(out, facts);
    text_char(out, ':');
    escape(out, id);
}
