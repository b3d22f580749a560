/* read_identity.c - section identity: sources of client identity, trusted peers. */
#include "config/sections.h"
#include "content/json_path.h"
#include "policy/identity_source.h"

/* ---- sources, trusted peers ------------------------------------------------------------------ */

enum { EXPECTED_MAX = 128, HASH_KEY_MAX = 1024 }; /* bytes */

/* "ip, header:NAME or jwt:CLAIM" */
static const char *expected_sources(char bytes[static EXPECTED_MAX])
{
    struct text text = text_over(bytes, EXPECTED_MAX - 1);

    for (unsigned i = 0; i < identity_source_count; i++) {
        const struct identity_source *source = &identity_sources[i];
        text_put(&text, i == 0                           ? SLICE("")
                        : i + 1 == identity_source_count ? SLICE(" or ")
                                                         : SLICE(", "));
        identity_source_write(&text, source);
    }
    bytes[text.n] = 0;
    return bytes;
}

/* Returns the source of `word` or `word:NAME`, with the name; NULL: unknown, or the name is bad. */
static const struct identity_source *source_named(struct slice text, struct slice *name)
{
    for (unsigned i = 0; i < identity_source_count; i++) {
        const struct identity_source *source = &identity_sources[i];
        struct slice word = slice_of(source->word);
        *name = (struct slice){text.p + word.n, text.n - word.n};
        if (!slice_starts_with(text, word) || (name->n > 0) != (source->placeholder != NULL))
            continue;
        if (!source->placeholder)
            return source;
        *name = (struct slice){name->p + 1, name->n - 1};
        return text.p[word.n] == ':' && source->name_is_good(*name) ? source : NULL;
    }
    return NULL;
}

bool identity_read_source(struct loading *l, const struct node *item, struct identity_from *from)
{
    char expected[EXPECTED_MAX];
    struct slice name;

    if (!expect_scalar(l, item, "ip or \"header:NAME\" (without a space after the colon)"))
        return false;
    from->source = source_named(item->text, &name);
    if (!from->source) {
        mistake(l, item, "%s is unknown; expected %s", QUOTE(item->text),
                expected_sources(expected));
        return false;
    }
    if (from->source->placeholder)
        from->name = arena_text(l->arena, name);
    from->field = from->source->is_header && slice_equal_nocase(name, SLICE("X-Client-Id"))
                      ? FIELD_X_CLIENT_ID
                      : FIELD_OTHER;
    return true;
}

void identity_add_claim(struct loading *l, struct identity_from *from)
{
    struct identity_settings *identity = &l->policy->identity;

    if (!from->source || strcmp(from->source->word, "jwt") != 0 ||
        identity->claim_count == CLAIMS_MAX)
        return;
    identity->claims[identity->claim_count] = from;
    from->claim = identity->claim_count++;
}

/* Adds the path of a json source to those that are read before the identity is known. There are
 * fewer sources than a set of paths holds. */
static void add_json_path(struct loading *l, struct identity_from *from)
{
    struct identity_settings *identity = &l->policy->identity;

    if (strcmp(from->source->word, "json") != 0)
        return;
    struct json_path *path = arena_zeroed(l->arena, 1, sizeof *path);
    (void)json_path_parse(slice_of(from->name), path);
    from->path = path;
    if (!identity->paths)
        identity->paths = arena_zeroed(l->arena, 1, sizeof *identity->paths);
    (void)json_paths_add(identity->paths, path);
}

static bool same_source(const struct identity_from *a, const struct identity_from *b)
{
    struct slice one = slice_of(a->name), other = slice_of(b->name);
    return a->source == b->source &&
           (a->source->is_header ? slice_equal_nocase(one, other) : slice_equal(one, other));
}

static void read_from(struct loading *l, const struct option *option, const struct node *node,
                      void *field)
{
    struct identity_settings *identity = field;
    char expected[EXPECTED_MAX + 3] = "of ";

    expected_sources(expected + 3);
    if (!expect_items(l, option, node, expected))
        return;
    EACH_ITEM (item, node) {
        struct identity_from *from = &identity->from[identity->from_count];
        if (item->broken || !identity_read_source(l, item, from))
            continue;
        for (unsigned i = 0; i < identity->from_count; i++)
            if (same_source(&identity->from[i], from))
                mistake(l, item, "%s is listed twice", QUOTE(item->text));
        if (node->position.column > 1) /* else it is the default, which is no text of the file */
            from->position = item->position;
        identity_add_claim(l, from);
        add_json_path(l, from);
        identity->from_count++;
    }
}

static void print_source(FILE *out, const void *identity, unsigned index)
{
    const struct identity_from *from = &((const struct identity_settings *)identity)->from[index];

    fprintf(out, from->name ? "\"%s:" : "%s", from->source->word);
    if (!from->name)
        return;
    print_quoted(out, slice_of(from->name));
    fputc('"', out);
}

PRINT_ITEMS(print_from, identity_settings, from_count, print_source)

const struct option_type type_identity_from = {"list of sources", read_from, print_from, false, 0};

static void read_proxy(struct loading *l, const struct node *item,
                       struct identity_settings *identity)
{
    struct ip_range *range = &identity->trusted[identity->trusted_count];
    const char *why;

    if (!expect_scalar(l, item, "an address, a range or \"unix:\" (in quotes)"))
        return;
    if (slice_equal(item->text, SLICE("unix:")))
        identity->trust_unix = true;
    else if (ip_range_parse(item->text, range, &why))
        identity->trusted_count++;
    else
        mistake(l, item, "%s: %s", QUOTE(item->text), why);
}

static void read_trusted(struct loading *l, const struct option *option, const struct node *node,
                         void *field)
{
    struct identity_settings *identity = field;
    unsigned count = list_count(node);

    if (!expect_items(l, option, node, "addresses and ranges"))
        return;
    identity->trusted = arena_zeroed(l->arena, count, sizeof *identity->trusted);
    EACH_ITEM (item, node)
        if (!item->broken)
            read_proxy(l, item, identity);
}

static void print_proxy(FILE *out, const void *field, unsigned index)
{
    const struct identity_settings *identity = field;
    char room[64];
    struct text range = text_over(room, sizeof room);

    if (index == identity->trusted_count)
        text_literal(&range, "unix:");
    else
        ip_range_format(&identity->trusted[index], &range);
    print_scalar(out, text_slice(&range));
}

static void print_trusted(const struct printer *printer, const void *field)
{
    const struct identity_settings *identity = field;

    print_items(printer, identity->trusted_count + identity->trust_unix, print_proxy, identity);
}

const struct option_type type_trusted = {"list of addresses and ranges", read_trusted,
                                         print_trusted, true, 0};

/* --- hash_key --- */

static void read_hash_key(struct loading *l, const struct option *option, const struct node *node,
                          void *field)
{
    struct identity_settings *identity = field;

    (void)option;
    if (!node->null && (!expect_scalar(l, node, "text") || !text_fits(l, node, 1, HASH_KEY_MAX)))
        return;
    identity->hash_key_text = node->null ? NULL : keep_text(l, node);
    /* the prefix is read earlier; NULL after an error there */
    hmac_key_init(
        &identity->hash_key,
        slice_of(identity->hash_key_text ? identity->hash_key_text : l->policy->redis.key_prefix));
}

const struct option_type type_hash_key = {"text", read_hash_key, print_secret, true, 0};

/* --- client_ip_header --- */

static void read_client_ip_header(struct loading *l, const struct option *option,
                                  const struct node *node, void *field)
{
    struct identity_settings *identity = field;

    if (!expect_text(l, option, node, "a header's name"))
        return;
    if (!slice_is_token(node->text))
        mistake(l, node, "%s is not a header name", QUOTE(node->text));
    else if (field_id_of(node->text) == FIELD_FORWARDED)
        mistake(l, node,
                "weir does not read the syntax of Forwarded (RFC 7239); let the proxy send "
                "X-Forwarded-For, or another header with plain addresses");
    else
        identity->client_ip_header = keep_text(l, node);
    identity->drops_client_ip_header = !slice_equal_nocase(node->text, SLICE("X-Forwarded-For"));
}

const struct option_type type_client_ip_header = {"text", read_client_ip_header, print_text, false,
                                                  0};

/* Reports sources that never have a value, since no listener requests certificates. */
static void check_certificates(struct loading *l)
{
    const struct identity_settings *identity = &l->policy->identity;
    const struct node *from = node_at(l, "identity", "from");
    const struct node *item = list_first(from);

    for (unsigned i = 0; item && i < identity->from_count; i++, item = list_next(from, item))
        if (strcmp(identity->from[i].source->word, "certificate") == 0 &&
            !listeners_verify_clients(l->policy))
            mistake(l, item,
                    "no listener requests certificates; set client_ca in tls of a listener");
}

void identity_finish(struct loading *l)
{
    struct identity_settings *identity = &l->policy->identity;
    bool trusts_nobody = identity->trusted_count == 0 && !identity->trust_unix;

    identity->headers_from_anyone = trusts_nobody || identity->headers_from == HEADERS_FROM_ANYONE;
    check_jwt(l);
    check_certificates(l);
}
