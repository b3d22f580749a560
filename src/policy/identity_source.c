#include "policy/identity_source.h"

#include "base/text.h"
#include "content/json_path.h"
#include "http/credentials.h"
#include "http/parse.h"
#include "policy/identity_internal.h"
#include "policy/pairs.h"

/* --- Sources --- */

static bool is_header_name(struct slice name)
{
    return slice_is_token(name) && name.n <= 128;
}

/* A decoded name without characters that separate parameters. */
static bool is_query_name(struct slice name)
{
    bool good = name.n > 0 && name.n <= 128;
    for (size_t i = 0; good && i < name.n; i++)
        good = name.p[i] > ' ' && name.p[i] < 0x7f && !strchr("&;=%+#[", name.p[i]);
    return good;
}

static bool is_claim_name(struct slice name)
{
    return name.n > 0 && name.n <= 128 && !slice_has_control_bytes(name);
}

static bool is_json_path(struct slice name)
{
    struct json_path path;
    return !json_path_parse(name, &path);
}

static enum found find_address(const struct identity_search *search,
                               const struct identity_from *from)
{
    (void)from;
    identity_write_address(&search->input->policy->identity, search->identity);
    return FOUND;
}

static enum found write_plain(const struct identity_settings *settings,
                              const struct identity_source *source, struct slice scheme,
                              struct slice value, struct identity *identity);

/* Returns why servers may read the value differently; NULL if they do not. */
static const char *field_fault(const struct field *field)
{
    return field_is_named_away(field)              ? "Connection names the identity header"
           : slice_has_control_bytes(field->value) ? "the identity header contains control bytes"
           : value_may_be_trimmed(field->value)
               ? "the identity header begins or ends with a blank of Unicode"
               : NULL;
}

/* For headers without a field id, such as Authorization. Not inlined: most headers have one. */
static __attribute__((noinline)) enum found write_credentials(const struct identity_search *search,
                                                              const struct identity_from *from,
                                                              const struct field *field)
{
    char bytes[CREDENTIALS_SCHEME_MAX];
    struct text scheme = text_over(bytes, sizeof bytes);
    struct slice rest = field->value;
    const char *why = credentials_split(field->name, &rest, &scheme);

    return why ? identity_bad(search, why)
               : write_plain(&search->input->policy->identity, from->source, text_slice(&scheme),
                             rest, search->identity);
}

static enum found find_header(const struct identity_search *search,
                              const struct identity_from *from)
{
    const struct fields *fields = search->input->fields;
    bool known = from->field != FIELD_OTHER;
    struct slice name = known ? SLICE_NONE : slice_of(from->name);
    const struct field *field =
        known ? fields_find(fields, from->field) : fields_next_named(fields, name, NULL);

    if (!field)
        return FOUND_NONE;
    if (known ? fields_repeat(fields, from->field) : fields_next_named(fields, name, field) != NULL)
        return identity_bad(search, "the identity header occurs twice");
    const char *why = field_fault(field);
    if (why)
        return identity_bad(search, why);
    return known ? write_plain(&search->input->policy->identity, from->source, SLICE(""),
                               field->value, search->identity)
                 : write_credentials(search, from, field);
}

const struct identity_source identity_sources[] = {
    {.word = "ip",
     .description = "address",
     .prefix = SLICE("ip:"),
     .verified = true,
     .find = find_address},
    {.word = "header",
     .description = "header",
     .prefix = SLICE("id:"),
     .placeholder = "NAME",
     .is_id = true,
     .is_header = true,
     .name_is_good = is_header_name,
     .find = find_header},
    {.word = "cookie",
     .description = "cookie",
     .prefix = SLICE("cookie:"),
     .placeholder = "NAME",
     .is_id = true,
     .counts = true,
     .header = "Cookie",
     .hashed = true,
     .name_is_good = is_header_name, /* a token too (RFC 6265 section 4.1.1) */
     .find = identity_find_cookie},
    {.word = "query",
     .description = "query parameter",
     .prefix = SLICE("query:"),
     .placeholder = "NAME",
     .is_id = true,
     .counts = true,
     .hashed = true,
     .name_is_good = is_query_name,
     .find = identity_find_query},
    {.word = "jwt",
     .description = "claim",
     .prefix = SLICE("jwt:"),
     .placeholder = "CLAIM",
     .is_id = true,
     .counts = true,
     .verified = true,
     .name_is_good = is_claim_name,
     .find = identity_find_claim},
    {.word = "json",
     .description = "value in the content",
     .prefix = SLICE("json:"),
     .placeholder = "PATH",
     .is_id = true,
     .name_is_good = is_json_path,
     .find = identity_find_json},
    {.word = "certificate",
     .description = "name in a certificate",
     .prefix = SLICE("certificate:"),
     .placeholder = "cn|san|fingerprint",
     .is_id = true,
     .verified = true,
     .name_is_good = identity_is_certificate_name,
     .find = identity_find_certificate},
};
const unsigned identity_source_count = COUNT_OF(identity_sources);

/* The source of names without a prefix. */
static const struct identity_source *header_source(void)
{
    const struct identity_source *source = identity_sources;
    while (!source->is_header)
        source++;
    return source;
}

const struct identity_source *identity_source_of(struct slice text)
{
    for (unsigned i = 0; i < identity_source_count; i++)
        if (slice_starts_with(text, identity_sources[i].prefix))
            return &identity_sources[i];
    return NULL;
}

bool identity_text_is_id(struct slice text)
{
    const struct identity_source *source = identity_source_of(text);
    return source && source->is_id;
}

/* --- Values --- */

bool identity_is_hash(struct slice text)
{
    if (text.n != IDENTITY_HASH_DIGITS)
        return false;
    for (size_t i = 0; i < text.n; i++)
        if (!memchr("0123456789abcdef", text.p[i], 16))
            return false;
    return true;
}

/* Returns true for "h:HASH". */
static bool looks_hashed(struct slice value)
{
    return value.n == 2 + IDENTITY_HASH_DIGITS && slice_starts_with(value, SLICE("h:")) &&
           identity_is_hash((struct slice){value.p + 2, value.n - 2});
}

static bool keeps_malformed(const struct identity_settings *settings,
                            const struct identity_source *source)
{
    return source->find == identity_find_cookie && settings->cookies == COOKIES_HASH;
}

static void write_hashed(struct text *out, const struct identity_settings *settings,
                         struct slice scheme, struct slice value)
{
    SHA256_CTX hash = hmac_begin(&settings->hash_key);

    hmac_add(&hash, scheme);
    hmac_add(&hash, value);
    text_literal(out, "h:");
    identity_write_hash(out, &settings->hash_key, &hash);
}

struct slice identity_short_value(const struct identity_settings *settings, struct slice value,
                                  struct text *scratch)
{
    size_t start = scratch->n;

    if (value.n <= CLIENT_ID_MAX && !looks_hashed(value))
        return value;
    write_hashed(scratch, settings, SLICE(""), value);
    return (struct slice){scratch->p + start, scratch->n - start};
}

void identity_write_long(const struct identity_settings *settings,
                         const struct identity_source *source, SHA256_CTX *hash,
                         struct identity *identity)
{
    struct text text = text_over(identity->text, sizeof identity->text);

    text_put(&text, source->prefix);
    text_literal(&text, "h:");
    identity_write_hash(&text, &settings->hash_key, hash);
    identity->size = text.n;
}

/* Writes a value that is hashed only if it is long, if it looks like a hash, or by identity.hash.
 * `scheme`: of credentials; else empty. */
static enum found write_plain(const struct identity_settings *settings,
                              const struct identity_source *source, struct slice scheme,
                              struct slice value, struct identity *identity)
{
    struct text text = text_over(identity->text, sizeof identity->text);

    text_put(&text, source->prefix);
    if (scheme.n + value.n > CLIENT_ID_MAX || (source->is_header && settings->hash) ||
        (!scheme.n && looks_hashed(value))) {
        write_hashed(&text, settings, scheme, value);
    } else {
        text_put(&text, scheme);
        text_put(&text, value);
    }
    identity->size = text.n;
    return scheme.n + value.n ? FOUND : FOUND_NONE;
}

enum found identity_write_id(const struct identity_settings *settings,
                             const struct identity_source *source, struct slice value,
                             struct identity *identity, const char **why)
{
    struct text text = text_over(identity->text, sizeof identity->text);
    SHA256_CTX hash;
    bool empty;

    if (!source->hashed)
        return write_plain(settings, source, SLICE(""), value, identity);
    hash = hmac_begin(&settings->hash_key);
    *why = identity_hash_value(&hash, value, keeps_malformed(settings, source), &empty);
    if (*why) {
        identity->failure = IDENTITY_MALFORMED;
        return FOUND_BAD;
    }
    text_put(&text, source->prefix);
    identity_write_hash(&text, &settings->hash_key, &hash);
    identity->size = text.n;
    return empty ? FOUND_NONE : FOUND;
}

/* --- Names --- */

static bool parse_address(const struct identity_settings *settings, struct slice address,
                          struct identity *identity, const char **why)
{
    struct ip_range range;
    const char *bad;

    identity->has_ip = !slice_equal(address, SLICE("unix"));
    if (identity->has_ip && !ip_parse(address, &identity->ip)) {
        bool good = ip_range_parse(address, &range, &bad);
        if (!good || range.bits != identity_group(settings, &range.ip).bits) {
            *why = memchr(address.p, '/', address.n)
                       ? "a range is not a client; name one address (after \"ip:\")"
                       : "behind \"ip:\" stands an IPv4 or IPv6 address, or \"unix\"";
            return false;
        }
        identity->ip = range.ip;
    }
    identity_write_address(settings, identity);
    return true;
}

static void write_hash(const struct identity_source *source, struct slice hashed,
                       struct identity *identity)
{
    struct text text = text_over(identity->text, sizeof identity->text);

    text_put(&text, source->prefix);
    text_put(&text, source->hashed ? (struct slice){hashed.p + 2, hashed.n - 2} : hashed);
    identity->size = text.n;
}

bool identity_parse(const struct identity_settings *settings, struct slice name,
                    struct identity *identity, const char **why)
{
    const struct identity_source *source = identity_source_of(name);
    size_t prefix = source ? source->prefix.n : 0;
    struct slice value = {name.p + prefix, name.n - prefix};

    if (source && source->find == identity_find_cookie)
        value = identity_trim_cookie(value);
    *identity = (struct identity){.is_id = !source || source->is_id};
    if (!identity->is_id)
        return parse_address(settings, value, identity, why);
    if (source && looks_hashed(value)) {
        write_hash(source, value, identity);
        return true;
    }
    if (slice_has_control_bytes(value)) {
        *why = "an id must not contain control bytes";
        return false;
    }
    enum found found =
        identity_write_id(settings, source ? source : header_source(), value, identity, why);
    if (found == FOUND_NONE)
        *why = "an id has at least one byte";
    return found == FOUND;
}

void identity_write_full_name(struct text *out, struct slice text)
{
    const struct identity_source *source = identity_source_of(text);
    size_t prefix = source ? source->prefix.n : 0;

    text_put(out, (struct slice){text.p, prefix});
    if (source && source->hashed)
        text_literal(out, "h:");
    text_put(out, (struct slice){text.p + prefix, text.n - prefix});
}

void identity_write_name(struct text *out, struct slice text)
{
    const struct identity_source *source = identity_source_of(text);
    size_t prefix = source ? source->prefix.n : 0;
    struct slice value = {text.p + prefix, text.n - prefix};

    if (source == header_source() && !identity_source_of(value) && !looks_hashed(value))
        text_put(out, value);
    else
        identity_write_full_name(out, text);
}
