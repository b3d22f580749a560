/* descriptor_name.h - the name of a descriptor: descriptor:DOMAIN/KEY=VALUE/KEY=VALUE.
 *
 * This name is the client in inspect, reset, grant, top, logs, and in the keys of Redis. Control
 * bytes, space, "%", "/", "{", "}" and "*" are percent-encoded; in domain and keys "=" as well. The
 * value of an entry with share_threshold is its pattern, with "*". A name that would be longer than
 * DESCRIPTOR_NAME_MAX bytes is descriptor:DOMAIN/h:HASH or, if the domain is too long,
 * descriptor:h:HASH. Different descriptors have different names. */
#ifndef WEIR_POLICY_DESCRIPTOR_NAME_H
#define WEIR_POLICY_DESCRIPTOR_NAME_H

#include "policy/rate_limit_service.h"

enum { DESCRIPTOR_NAME_MAX = 256 };

struct descriptor_name {
    size_t size;
    char text[DESCRIPTOR_NAME_MAX];
};

static inline struct slice descriptor_name_text(const struct descriptor_name *name)
{
    return (struct slice){name->text, name->size};
}

/* Writes the name of a descriptor. */
void descriptor_name_write(struct slice domain, const struct call_descriptor *descriptor,
                           const struct descriptor_match *match, struct descriptor_name *name);

/* A parsed name: the descriptor that it names. */
struct parsed_descriptor {
    struct slice domain;
    struct call_descriptor descriptor;
    bool hashed; /* the name is a hash: domain is empty or known, the entries are not */
    struct descriptor_entry entries[DESCRIPTOR_ENTRIES_MAX];
    char text[4096];
};

/* Returns true if the text begins with "descriptor:". */
bool descriptor_name_is_one(struct slice text);

/* Parses a name as operators write it. Its slices point into parsed->text. Returns NULL, or what is
 * wrong. */
const char *descriptor_name_parse(struct slice name, struct parsed_descriptor *parsed);

#endif
