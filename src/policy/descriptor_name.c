#include "policy/descriptor_name.h"

#include "base/hash.h"
#include "base/text.h"
#include "policy/pairs.h"

static const struct slice prefix = {"descriptor:", sizeof "descriptor:" - 1};

/* --- Writing ---------------------------------------------------------------------------------- */

enum { IN_KEY = 1, IN_VALUE = 2, IN_PATTERN = 4 };

/* Returns the parts of a name in which the byte is percent-encoded. */
static unsigned encoded_in(unsigned char c)
{
    if (c <= ' ' || c == 0x7f || c == '%' || c == '/' || c == '{' || c == '}')
        return IN_KEY | IN_VALUE | IN_PATTERN;
    return c == '*' ? IN_KEY | IN_VALUE : c == '=' ? IN_KEY : 0;
}

static void encode(struct text *out, struct slice part, unsigned where)
{
    for (size_t i = 0; i < part.n; i++) {
        unsigned char c = (unsigned char)part.p[i];
        if (encoded_in(c) & where)
            text_percent(out, c);
        else
            text_char(out, (char)c);
    }
}

/* The configured entries of a descriptor, by its entries; NULL: none, or its value counts. */
struct shared {
    const struct configured_entry *by[DESCRIPTOR_ENTRIES_MAX];
};

static void find_shared(const struct descriptor_match *match, struct shared *shared)
{
    const struct configured_entry *entry = match ? match->entry : NULL;

    for (unsigned i = 0; i < DESCRIPTOR_ENTRIES_MAX; i++)
        shared->by[i] = NULL;
    for (; entry; entry = entry->parent)
        shared->by[entry->depth] = entry->shares ? entry : NULL;
}

static void write_entries(struct text *out, const struct call_descriptor *descriptor,
                          const struct shared *shared)
{
    for (unsigned i = 0; i < descriptor->entry_count && !out->failed; i++) {
        text_char(out, '/');
        encode(out, descriptor->entries[i].key, IN_KEY);
        text_char(out, '=');
        if (shared->by[i])
            encode(out, shared->by[i]->value, IN_PATTERN);
        else
            encode(out, descriptor->entries[i].value, IN_VALUE);
    }
}

/* SipHash under a known key, the same in every weir: finding two descriptors with one hash takes
 * about 2^64 tries, and gains only that they are counted together. */
static void write_hash(struct text *out, struct slice domain,
                       const struct call_descriptor *descriptor, const struct shared *shared)
{
    struct hash_key key = {0};

    hash_key_mix(&key, domain);
    for (unsigned i = 0; i < descriptor->entry_count; i++) {
        hash_key_mix(&key, descriptor->entries[i].key);
        hash_key_mix(&key, shared->by[i] ? SLICE("*") : SLICE("="));
        hash_key_mix(&key, shared->by[i] ? shared->by[i]->value : descriptor->entries[i].value);
    }
    text_literal(out, "h:");
    text_hex_fixed(out, key.k0, 16);
    text_hex_fixed(out, key.k1, 16);
}

void descriptor_name_write(struct slice domain, const struct call_descriptor *descriptor,
                           const struct descriptor_match *match, struct descriptor_name *name)
{
    struct text out = text_over(name->text, sizeof name->text);
    struct shared shared;

    find_shared(match, &shared);
    text_put(&out, prefix);
    encode(&out, domain, IN_KEY);
    size_t start = out.n;
    write_entries(&out, descriptor, &shared);
    if (out.failed) {
        bool has_domain = start < sizeof name->text / 2 && start > prefix.n;
        out = text_over(name->text, sizeof name->text);
        out.n = has_domain ? start : prefix.n;
        if (has_domain)
            text_char(&out, '/');
        write_hash(&out, domain, descriptor, &shared);
    }
    name->size = out.n;
}

/* --- Parsing ---------------------------------------------------------------------------------- */

bool descriptor_name_is_one(struct slice text)
{
    return slice_starts_with(text, prefix);
}

/* Removes the part before the next "/" from the text. */
static struct slice next_part(struct slice *text)
{
    const char *slash = text->n ? memchr(text->p, '/', text->n) : NULL;
    struct slice part = {text->p, slash ? (size_t)(slash - text->p) : text->n};
    size_t taken = part.n + (slash != NULL);

    *text = (struct slice){text->p + taken, text->n - taken};
    return part;
}

/* Returns the decoded text, in `room`, which has enough of it. Invalid codes stay. */
static struct slice decode(struct text *room, struct slice coded)
{
    struct slice decoded = percent_decode(coded, false, room->p + room->n);

    room->n += decoded.n;
    return decoded;
}

static const char *parse_entry(struct slice part, struct text *room, struct descriptor_entry *entry)
{
    const char *equals = part.n ? memchr(part.p, '=', part.n) : NULL;
    size_t n = equals ? (size_t)(equals - part.p) : 0;

    if (n == 0)
        return "each part after the domain is KEY=VALUE";
    entry->key = decode(room, (struct slice){part.p, n});
    entry->value = decode(room, (struct slice){equals + 1, part.n - n - 1});
    return NULL;
}

static bool is_hash(struct slice part)
{
    return slice_starts_with(part, SLICE("h:")) && part.n == 2 + 32;
}

const char *descriptor_name_parse(struct slice name, struct parsed_descriptor *parsed)
{
    struct text room = text_over(parsed->text, sizeof parsed->text);
    struct slice rest = {name.p + prefix.n, name.n - prefix.n};
    unsigned count = 0;
    const char *why;

    if (name.n > sizeof parsed->text)
        return "it is longer than 4096 bytes";
    parsed->hashed = is_hash(rest);
    parsed->domain = parsed->hashed ? SLICE("") : decode(&room, next_part(&rest));
    if (!parsed->hashed && parsed->domain.n == 0)
        return "the domain is missing: descriptor:DOMAIN/KEY=VALUE";
    parsed->hashed |= is_hash(rest);
    for (; rest.n && !parsed->hashed; count++) {
        if (count == DESCRIPTOR_ENTRIES_MAX)
            return "a descriptor has at most 32 entries";
        if ((why = parse_entry(next_part(&rest), &room, &parsed->entries[count])))
            return why;
    }
    if (count == 0 && !parsed->hashed)
        return "its entries are missing: descriptor:DOMAIN/KEY=VALUE";
    parsed->descriptor = (struct call_descriptor){.entries = parsed->entries, .entry_count = count};
    return NULL;
}
