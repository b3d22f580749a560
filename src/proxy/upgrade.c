#include "proxy/upgrade.h"

#include "http/parse.h"

/* A name, and perhaps a version after a "/": both are tokens. */
static bool is_protocol(struct slice protocol)
{
    const char *slash = memchr(protocol.p, '/', protocol.n);
    struct slice name = {protocol.p, slash ? (size_t)(slash - protocol.p) : protocol.n};

    return slice_is_token(name) &&
           (!slash || slice_is_token((struct slice){slash + 1, protocol.n - name.n - 1}));
}

/* Returns false if a listed protocol carries HTTP: cleartext HTTP/2 (h2c), any other HTTP version,
 * or TLS (RFC 2817). weir could not limit requests in such a tunnel, so it then offers none of the
 * listed protocols. Nor does it if one is not well-formed: a server may read "\"h2c\"" as h2c. */
static bool can_be_offered(struct slice value)
{
    struct slice protocol;

    while (slice_next_element(&value, &protocol))
        if (!is_protocol(protocol) || slice_starts_with_nocase(protocol, SLICE("h2")) ||
            slice_starts_with_nocase(protocol, SLICE("HTTP")) ||
            slice_starts_with_nocase(protocol, SLICE("TLS")))
            return false;
    return true;
}

struct slice upgrade_offer(const struct request_head *head, const struct framing *framing)
{
    const struct field *upgrade = fields_find(&head->fields, FIELD_UPGRADE);

    if (!upgrade || head->minor == 0 || framing->kind != FRAMING_NONE ||
        fields_next_named(&head->fields, upgrade->name, upgrade) ||
        !connection_names(&head->fields, SLICE("upgrade")) || !can_be_offered(upgrade->value))
        return SLICE_NONE;
    return upgrade->value;
}

static bool was_offered(const struct exchange *x, struct slice protocol)
{
    struct slice rest = {x->upgrade, x->request.upgrade_size}, offered;

    while (slice_next_element(&rest, &offered))
        if (slice_equal_nocase(protocol, offered))
            return true;
    return false;
}

const char *upgrade_fault(const struct exchange *x, const struct fields *fields)
{
    const struct field *upgrade = fields_find(fields, FIELD_UPGRADE);
    struct slice rest, protocol;
    bool any = false;

    if (x->request.upgrade_size == 0)
        return "the server switches protocols without a request for it";
    if (!upgrade || fields_repeat(fields, FIELD_UPGRADE))
        return "a 101 without exactly one Upgrade field";
    if (!connection_names(fields, SLICE("upgrade")))
        return "a 101 whose Connection field does not name Upgrade";
    for (rest = upgrade->value; slice_next_element(&rest, &protocol); any = true)
        if (!was_offered(x, protocol))
            return "the server switches to a protocol that the client did not offer";
    return any ? NULL : "a 101 with an empty Upgrade field";
}
