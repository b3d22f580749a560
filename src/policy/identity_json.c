/* identity_json.c - ids from values in the content of requests, a JSON object. */
#include "policy/criteria.h"
#include "policy/identity_internal.h"

/* Texts begin with "=" where an integer or a boolean must differ from them (json_values.h); the id
 * of a client is the same for 5 and "5". */
static struct slice unmarked(struct slice text)
{
    return slice_starts_with(text, SLICE("=")) ? (struct slice){text.p + 1, text.n - 1} : text;
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
                                    "there twice");
    struct slice text = unmarked(json_values_text(content->values, from->path));
    if (slice_has_control_bytes(text))
        return identity_bad(search, "the identity in the content contains control characters");
    return identity_write_id(&search->input->policy->identity, from->source, text, search->identity,
                             search->why);
}
