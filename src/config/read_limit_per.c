/* read_limit_per.c - the option per of a limit: the attributes of requests that it counts by. */
#include "config/sections.h"
#include "policy/identity_source.h"

static const char *const per_names[] = {
    [PER_CLIENT] = "client",
    [PER_IP] = "ip",
    [PER_ROUTE] = "route",
    [PER_METHOD] = "method",
    [PER_HOST] = "host",
    [PER_ALL] = "all",
    NULL,
};

/* ---- values of the request ------------------------------------------------------------------- */

static bool read_json_part(struct loading *l, const struct node *item, struct limit_part *part)
{
    struct json_path *path = arena_zeroed(l->arena, 1, sizeof *path);

    part->per = PER_JSON;
    part->json = path;
    const char *fault = json_path_parse(slice_of(part->name), path);
    if (fault)
        mistake(l, item, "%s is not a path: %s", QUOTE(slice_of(part->name)), fault);
    return !fault;
}

/* Adds the source to those of the policy, unless it is there. */
static bool add_key_source(struct loading *l, const struct node *item,
                           const struct key_source *source, struct limit_part *part)
{
    struct policy *policy = l->policy;
    unsigned i = 0;

    while (i < policy->key_source_count &&
           !slice_equal(slice_of(policy->key_sources[i].text), item->text))
        i++;
    part->per = PER_VALUE;
    part->value = i;
    if (i < policy->key_source_count)
        return true;
    if (i == KEY_SOURCES_MAX) {
        mistake(l, item,
                "limits count by at most %d different claims, cookies, parameters and "
                "segments",
                KEY_SOURCES_MAX);
        return false;
    }
    policy->key_sources[i] = *source;
    policy->key_sources[i].text = part->written;
    policy->key_source_count++;
    identity_add_claim(l, &policy->key_sources[i].from);
    return true;
}

static bool read_segment_part(struct loading *l, const struct node *item, struct limit_part *part)
{
    struct slice text = slice_of(part->name);
    uint64_t number;

    if (!slice_to_u64(text, KEY_SEGMENT_MAX, &number) || number == 0) {
        mistake(l, item, "%s is not the number of a segment of the path, 1 to %d", QUOTE(text),
                KEY_SEGMENT_MAX);
        return false;
    }
    return add_key_source(l, item, &(struct key_source){.segment = (unsigned)number}, part);
}

/* Reads the sources of identities that limits count by. `*good`: the result, if the item is one of
 * them. */
static bool read_identity_part(struct loading *l, const struct node *item, struct limit_part *part,
                               bool *good)
{
    struct key_source source = {0};

    for (unsigned i = 0; i < identity_source_count; i++) {
        struct slice word = slice_of(identity_sources[i].word);
        if (!identity_sources[i].counts || !slice_starts_with(item->text, word) ||
            item->text.p[word.n] != ':')
            continue;
        *good =
            identity_read_source(l, item, &source.from) && add_key_source(l, item, &source, part);
        return true;
    }
    return false;
}

/* ---- the list -------------------------------------------------------------------------------- */

enum { EXPECTED_MAX = 160 }; /* bytes */

static const char *expected_parts(char bytes[static EXPECTED_MAX], struct slice before)
{
    struct text text = text_over(bytes, EXPECTED_MAX - 1);

    text_put(&text, before);
    for (unsigned i = 0; per_names[i]; i++) {
        text_put(&text, slice_of(per_names[i]));
        text_literal(&text, ", ");
    }
    text_literal(&text, "header:NAME, ");
    for (unsigned i = 0; i < identity_source_count; i++)
        if (identity_sources[i].counts) {
            identity_source_write(&text, &identity_sources[i]);
            text_literal(&text, ", ");
        }
    text_literal(&text, "path:N or json:PATH");
    bytes[text.n] = 0;
    return bytes;
}

static bool read_part(struct loading *l, const struct node *item, struct limit_part *part)
{
    char expected[EXPECTED_MAX];
    unsigned per;
    bool good;

    expected_parts(expected, SLICE_NONE);
    if (!expect_scalar(l, item, expected))
        return false;
    part->written = arena_text(l->arena, item->text);
    const char *colon = strchr(part->written, ':');
    part->name = colon ? colon + 1 : NULL;
    if (colon && slice_starts_with(item->text, SLICE("header:")) &&
        slice_is_token(slice_of(part->name)) && strlen(part->name) <= 128) {
        part->per = PER_HEADER;
        return true;
    }
    if (slice_starts_with(item->text, SLICE("json:")))
        return read_json_part(l, item, part);
    if (slice_starts_with(item->text, SLICE("path:")))
        return read_segment_part(l, item, part);
    if (read_identity_part(l, item, part, &good))
        return good;
    good = word_read(l, item, per_names, expected, &per);
    if (good)
        part->per = (enum limit_per)per;
    return good;
}

static bool same_part(const struct limit_part *a, const struct limit_part *b)
{
    return a->per == b->per &&
           (a->per != PER_HEADER || slice_equal_nocase(slice_of(a->name), slice_of(b->name))) &&
           (a->per != PER_JSON || json_path_equal(a->json, b->json)) &&
           (a->per != PER_VALUE || a->value == b->value);
}

static bool part_fits(struct loading *l, const struct node *item, const struct limit *limit,
                      const struct limit_part *part)
{
    for (unsigned i = 0; i < limit->per_count; i++) {
        if (same_part(&limit->per[i], part)) {
            mistake(l, item, "%s is listed twice", QUOTE(item->text));
            return false;
        }
        if (limit->per[i].per == PER_ALL || part->per == PER_ALL) {
            mistake(l, item, "all cannot be combined with other attributes; remove one of them");
            return false;
        }
    }
    return true;
}

/* PER_CLIENT goes first, because limit_is_per_client() checks only per[0]. */
static void insert_part(struct limit *limit, struct limit_part part)
{
    unsigned at = part.per == PER_CLIENT ? 0 : limit->per_count;
    memmove(&limit->per[at + 1], &limit->per[at], (limit->per_count - at) * sizeof part);
    limit->per[at] = part;
    limit->per_count++;
}

static void read_per(struct loading *l, const struct option *option, const struct node *node,
                     void *field)
{
    struct limit *limit = field;
    char expected[EXPECTED_MAX];

    if (!expect_items(l, option, node, expected_parts(expected, SLICE("of "))))
        return;
    EACH_ITEM (item, node) {
        struct limit_part part = {0};
        if (!item->broken && read_part(l, item, &part) && part_fits(l, item, limit, &part))
            insert_part(limit, part);
    }
    limit->shared = true;
    for (unsigned i = 0; i < limit->per_count; i++)
        limit->shared &= limit->per[i].per != PER_CLIENT && limit->per[i].per != PER_IP;
}

static void print_part(FILE *out, const void *limit, unsigned index)
{
    const struct limit_part *part = &((const struct limit *)limit)->per[index];

    if (!part->name) {
        fputs(part->written, out);
        return;
    }
    fputc('"', out);
    print_quoted(out, slice_of(part->written));
    fputc('"', out);
}

PRINT_ITEMS(print_per, limit, per_count, print_part)

const struct option_type type_per = {"word or list", read_per, print_per, false, 0};
