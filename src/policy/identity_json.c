/* identity_json.c - ids from values in the content of requests, a JSON object. */
#include "policy/criteria.h"
#include "policy/identity_internal.h"

static const char control_bytes[] = "the identity in the content contains control characters";

/* Texts begin with "=" where an integer or a boolean must differ from them (json_values.h); the id
 * of a client is the same for 5 and "5". */
static struct slice unmarked(struct slice text)
{
    return slice_starts_with(text, SLICE("=")) ? (struct slice){text.p + 1, text.n - 1} : text;
}

struct long_id {
    SHA256_CTX hash;
    bool has_control_bytes;
};

static void add_piece(void *context, struct slice bytes)
{
    struct long_id *id = context;

    hmac_add(&id->hash, bytes);
    id->has_control_bytes |= slice_has_control_bytes(bytes);
}

/* Writes the id of a value that is longer than struct json_values stores. */
static enum found find_long(const struct identity_search *search, const struct identity_from *from)
{
    const struct identity_settings *settings = &search->input->policy->identity;
    struct long_id id = {.hash = hmac_begin(&settings->hash_key)};

    json_values_pieces(search->input->content->values, from->path, add_piece, &id);
    if (id.has_control_bytes)
        return identity_bad(search, control_bytes);
    identity_write_long(settings, from->source, &id.hash, search->identity);
    return FOUND;
}

enum found identity_find_json(const struct identity_search *search,
                              const struct identity_from *from)
{
    const struct content_facts *content = search->input->content;

    if (content && content->state == CONTENT_UNREAD)
        search->identity->needs_content = true;
    if (!content || content->state != CONTENT_VALUES)
        return FOUND_NONE;
    if (json_values_ambiguous(content->values, from->path))
        return identity_bad(search, "a name in the content that the identity is read from stands "
                                    "there twice, or the identity contains U+0000");
    struct slice text = unmarked(json_values_text(content->values, from->path));
    if (slice_has_control_bytes(text))
        return identity_bad(search, control_bytes);
    if (json_values_cut(content->values, from->path))
        return find_long(search, from);
    return identity_write_id(&search->input->policy->identity, from->source, text, search->identity,
                             search->why);
}
