/* options_rate_limit_service.c - rows of the option table: rate_limit_service. */
#include "config/option_rows.h"
#include "limit/header_families.h"

static const char *const charge_names[] = {[CHARGE_ALL] = "all", [CHARGE_EVERY] = "every", NULL};

/* Entries are printed without defaults: there may be thousands. */
static bool has_limits(const void *base)
{
    const struct configured_entry *entry = base;
    return !entry->rate_limit && entry->limit_count > 0;
}

static bool is_not_printed(const void *base)
{
    (void)base;
    return false;
}

#define SERVICE(m) OF(rate_limit_service.m)
#define DOMAIN(m)  MEMBER(rate_limit_domain, m)
#define ENTRY(m)   MEMBER(configured_entry, m)
#define IN_ENTRY   "rate_limit_service.domains.NAME.descriptors[]."

/* clang-format off */
static const struct option rows[] = {
    {.path = "rate_limit_service", .type = &type_section, .fallback = "",
     SET(policy, rate_limit_service.is_set),
     .help = "listener for callers of Envoy's rate limit service"},
    {.path = "rate_limit_service.listen", .type = &type_service_listen, OF(rate_limit_service),
     .low = 1, .high = LISTEN_MAX, .flags = RESTART | REQUIRED,
     SET(policy, rate_limit_service.is_set),
     .help = "addresses of the listener, as in the option listen"},
    {.path = "rate_limit_service.trusted", .type = &type_trusted, SERVICE(peers),
     .fallback = "loopback and trusted_proxies", .low = 1, .high = TRUSTED_MAX, .flags = DERIVED,
     .help = "addresses and ranges of the callers that may ask (1 to 1024)"},
    {.path = "rate_limit_service.shadow", .type = &type_bool, SERVICE(shadow), .fallback = "false",
     .help = "if true, every response is OK; decisions are only counted"},
    {.path = "rate_limit_service.charge", .type = &type_enum, SERVICE(charge), .fallback = "all",
     .names = charge_names,
     .help = "which descriptors of a call are charged if one of them is over its limit"},
    {.path = "rate_limit_service.headers", .type = &type_words, SERVICE(headers),
     .fallback = "headers", .names = header_family_words, .flags = DERIVED,
     SET(policy, rate_limit_service.has_headers),
     .help = "families of rate limit headers in responses of this listener"},
    {.path = "rate_limit_service.domains", .type = &type_rate_limit_domains,
     OF(rate_limit_service), .fallback = "", .high = RATE_LIMIT_DOMAINS_MAX,
     .help = "domains by name (at most 1024)"},
    {.path = "rate_limit_service.domains.NAME.file", .type = &type_text, DOMAIN(file),
     .fallback = "", .low = 1, .high = 4096, .applies = is_not_printed,
     .help = "file of envoyproxy/ratelimit with the descriptors of the domain"},
    {.path = "rate_limit_service.domains.NAME.charge", .type = &type_enum, DOMAIN(charge),
     .fallback = "rate_limit_service.charge", .names = charge_names, .flags = DERIVED,
     .help = "replaces rate_limit_service.charge for this domain"},
    {.path = "rate_limit_service.domains.NAME.descriptors", .type = &type_descriptors,
     DOMAIN(top), .fallback = "",
     .help = "entries that match the first entry of a descriptor"},
    {.path = IN_ENTRY "key", .type = &type_entry_text, ENTRY(key),
     .high = CONFIGURED_ENTRY_TEXT_MAX, .flags = REQUIRED,
     .help = "key of the entry"},
    {.path = IN_ENTRY "value", .type = &type_entry_text, ENTRY(value), .fallback = "",
     .high = CONFIGURED_ENTRY_TEXT_MAX, SET(configured_entry, value.n),
     .help = "value of the entry, in which * stands for any characters; without it, every value"},
    {.path = IN_ENTRY "rate_limit", .type = &type_rate_limit, SET(configured_entry, has_rate_limit),
     .help = "limit of the descriptors whose last entry matches"},
    {.path = IN_ENTRY "rate_limit.unit", .type = &type_rate_limit_unit, ENTRY(unit),
     UNSET(configured_entry, unlimited),
     .help = "second, minute, hour, day, week, month or year, in any letter case"},
    {.path = IN_ENTRY "rate_limit.requests_per_unit", .type = &type_number,
     ENTRY(requests_per_unit), .low = 0, .high = UINT32_MAX, UNSET(configured_entry, unlimited),
     .help = "number of requests per unit (0 to 4294967295)"},
    {.path = IN_ENTRY "rate_limit.unlimited", .type = &type_bool, ENTRY(unlimited),
     .fallback = "false", SET(configured_entry, unlimited),
     .help = "if true, there is no limit"},
    {.path = IN_ENTRY "rate_limit.name", .type = &type_text, ENTRY(name), .fallback = "",
     .low = 1, .high = CONFIGURED_ENTRY_TEXT_MAX, SET(configured_entry, name),
     .help = "name of the limit in responses and for replaces"},
    {.path = IN_ENTRY "rate_limit.replaces", .type = &type_replaces, .fallback = "[]",
     .high = REPLACES_MAX, SET(configured_entry, replaces_count),
     .help = "limits of other descriptors of the same call that do not apply (at most 64)"},
    {.path = IN_ENTRY "rate_limit.replaces[].name", .type = &type_entry_text,
     MEMBER(replaced_limit, name),
     .high = CONFIGURED_ENTRY_TEXT_MAX, .flags = REQUIRED,
     .help = "name of the limit"},
    {.path = IN_ENTRY "limits", .type = &type_entry_limits, .low = 1, .high = LIMITS_PER_RULE_MAX,
     .applies = has_limits,
     .help = "names of limits of this policy (at most 8), instead of rate_limit"},
    {.path = IN_ENTRY "shadow_mode", .type = &type_bool, ENTRY(shadow), .fallback = "false",
     SET(configured_entry, shadow),
     .help = "if true, the limit is counted but does not reject"},
    {.path = IN_ENTRY "quota_mode", .type = &type_bool, ENTRY(quota), .fallback = "false",
     SET(configured_entry, quota),
     .help = "if true, a call is over only if all its descriptors with quota_mode are"},
    {.path = IN_ENTRY "share_threshold", .type = &type_bool, ENTRY(shares), .fallback = "false",
     SET(configured_entry, shares),
     .help = "if true, all values of a value with * share one count"},
    {.path = IN_ENTRY "metadata", .type = &type_metadata, ENTRY(metadata), .fallback = "",
     SET(configured_entry, metadata),
     .help = "dynamic metadata of responses while the descriptor is not over its limit"},
    {.path = IN_ENTRY "detailed_metric", .type = &type_bool, ENTRY(detailed_metric),
     .fallback = "false", .applies = is_not_printed,
     .help = "accepted for files of envoyproxy/ratelimit; has no effect"},
    {.path = IN_ENTRY "value_to_metric", .type = &type_bool, ENTRY(value_to_metric),
     .fallback = "false", .applies = is_not_printed,
     .help = "accepted for files of envoyproxy/ratelimit; has no effect"},
    {.path = IN_ENTRY "descriptors", .type = &type_descriptors, ENTRY(below), .fallback = "",
     SET(configured_entry, below.count),
     .help = "entries that match the next entry of a descriptor"},
    {.path = "rate_limit_service.files", .type = &type_rate_limit_files, OF(rate_limit_service),
     .fallback = "", .high = RATE_LIMIT_FILES_MAX, .applies = is_not_printed,
     .help = "files of envoyproxy/ratelimit, each of which names its domain: paths with * (at most "
             "64)"},
};
/* clang-format on */

const struct option_group options_rate_limit_service = {rows, COUNT_OF(rows)};
