#include "policy/key_values.h"

#include "http/path.h"
#include "policy/identity_internal.h"

static bool is_wanted(const struct rule *rule, unsigned source)
{
    return rule->key_sources >> source & 1;
}

/* --- As identities ---------------------------------------------------------------------------- */

/* Stores an identity's text without its prefix. */
static void store_value(struct key_values *values, unsigned at, const struct identity_from *from,
                        struct slice text)
{
    size_t prefix = from->source->prefix.n;

    values->size[at] = text.n - prefix;
    memcpy(values->text[at], text.p + prefix, text.n - prefix);
}

bool key_values_read(const struct identity_input *input, const struct rule *rule,
                     struct identity *identity, struct key_values *values, const char **why)
{
    const struct policy *policy = input->policy;
    struct identity found = *identity;
    const struct identity_search search = {input, &found, why};

    identity_forget_cached_token(&found);
    for (unsigned i = 0; i < policy->key_source_count; i++) {
        const struct identity_from *from = &policy->key_sources[i].from;
        values->size[i] = 0;
        if (!is_wanted(rule, i) || !from->source ||
            !(from->source->verified || identity->headers_trusted))
            continue;
        switch (from->source->find(&search, from)) {
        case FOUND_NONE: break;
        case FOUND: store_value(values, i, from, identity_text(&found)); break;
        case FOUND_BAD: identity->failure = found.failure; return false;
        }
    }
    identity->token_counted = found.token_counted;
    return true;
}

/* --- Segments of the path --------------------------------------------------------------------- */

struct slice key_segment(struct slice path, unsigned number)
{
    static const struct slice none = {"", 0};
    const char *end = path.p + path.n, *start = path.p;

    for (; start < end && number > 0; number--) {
        const char *slash = memchr(start + 1, '/', (size_t)(end - start) - 1);
        const char *stop = slash ? slash : end;
        if (number == 1)
            return (struct slice){start + 1, (size_t)(stop - start) - 1};
        start = stop;
    }
    return none;
}

/* Returns the segment if all readings of the path have it, else nothing. */
static struct slice certain_segment(struct slice normal, unsigned number, struct readings *readings)
{
    struct slice segment = key_segment(normal, number), reading;

    readings_begin(readings, normal);
    while (readings_next(readings, &reading))
        if (!slice_equal(key_segment(reading, number), segment))
            return SLICE_NONE;
    return readings->too_many ? SLICE_NONE : segment;
}

static void store_segment(const struct policy *policy, struct slice segment,
                          struct route_room *room, struct key_values *to, unsigned at)
{
    struct text lower = text_over(room->lower, sizeof room->lower);
    struct text text = text_over(to->text[at], sizeof to->text[at]);

    for (size_t i = 0; policy->paths.ignore_case && i < segment.n; i++)
        text_char(&lower, ascii_lower(segment.p[i]));
    if (policy->paths.ignore_case)
        segment = text_slice(&lower);
    struct slice value = identity_short_value(&policy->identity, segment, &text);
    if (text.n == 0)
        text_put(&text, value);
    to->size[at] = text.n;
}

void key_values_read_path(const struct policy *policy, const struct rule *rule, struct slice path,
                          struct route_room *room, struct key_values *values)
{
    struct text normal = text_over(room->normal, sizeof room->normal);
    bool good = path_normalise(path, &normal);

    for (unsigned i = 0; i < policy->key_source_count; i++) {
        const struct key_source *source = &policy->key_sources[i];
        if (good && is_wanted(rule, i) && source->segment)
            store_segment(policy,
                          certain_segment(text_slice(&normal), source->segment, &room->readings),
                          room, values, i);
    }
}
