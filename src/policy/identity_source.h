/* identity_source.h - the table of identity sources. To add a source, add its row. */
#ifndef WEIR_POLICY_IDENTITY_SOURCE_H
#define WEIR_POLICY_IDENTITY_SOURCE_H

#include "policy/identity.h"

enum found { FOUND_NONE, FOUND, FOUND_BAD };

/* One search for the identity of a request. */
struct identity_search {
    const struct identity_input *input;
    struct identity *identity;
    const char **why; /* set with FOUND_BAD; identity->failure is set too */
};

struct identity_source {
    const char *word;        /* in identity.from */
    struct slice prefix;     /* of identities, with the colon */
    const char *description; /* in messages */
    const char *placeholder; /* in messages, for the name after "word:"; NULL: none */
    bool is_id;              /* false: an address */
    bool counts;             /* `per` of limits may name it */
    bool verified;           /* accepted from every peer */
    bool is_header;          /* the name is a request header: hashed with identity.hash */
    const char *header;      /* another request header that `find` reads; NULL: none */
    bool hashed;             /* every value is stored as its hash; else values that are long */
    bool (*name_is_good)(struct slice name);
    /* Sets the identity's text and returns FOUND if the request has a value. */
    enum found (*find)(const struct identity_search *search, const struct identity_from *from);
};

extern const struct identity_source identity_sources[];
extern const unsigned identity_source_count;

/* Appends "word" or "word:NAME", for messages. */
static inline void identity_source_write(struct text *out, const struct identity_source *source)
{
    text_put(out, slice_of(source->word));
    text_put(out, source->placeholder ? SLICE(":") : SLICE_NONE);
    text_put(out, slice_of(source->placeholder));
}

/* Returns whether a source of ids comes before ip. */
static inline bool identity_has_ids(const struct identity_settings *settings)
{
    return settings->from_count && settings->from[0].source->is_id;
}

/* Returns whether the source is a claim of a token. */
static inline bool source_is_token(const struct identity_source *source)
{
    return strcmp(source->word, "jwt") == 0;
}

/* Returns the source of the text or name of an identity, by its prefix; NULL: no prefix. */
const struct identity_source *identity_source_of(struct slice text);

/* Returns true if the text could be the hash of a value: 32 hexadecimal digits in lower case. */
bool identity_is_hash(struct slice text);

/* Returns a value that limits count by: as it is, or "h:" and its hash, appended to `scratch`, if
 * it is longer than CLIENT_ID_MAX or looks like such a hash. So it has at most CLIENT_ID_MAX bytes,
 * and different values stay different. */
struct slice identity_short_value(const struct identity_settings *settings, struct slice value,
                                  struct text *scratch);

/* Sets the identity's text to the source's prefix and the value, hashed if necessary. Returns
 * FOUND_NONE for an empty value, and FOUND_BAD with `*why` for control bytes or malformed
 * percent-encoding. */
enum found identity_write_id(const struct identity_settings *settings,
                             const struct identity_source *source, struct slice value,
                             struct identity *identity, const char **why);

#endif
