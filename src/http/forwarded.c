#include "http/forwarded.h"

#include "http/parse.h"

/* Returns whether every quoted string is closed, so that an appended element stays separate. Quotes
 * may enclose only whole values. A backslash is refused: no address or host needs one, and parsers
 * differ in how they unescape it. */
static bool ends_unquoted(struct slice value)
{
    bool quoted = false;

    for (size_t i = 0; i < value.n; i++) {
        char c = value.p[i], next = i + 1 < value.n ? value.p[i + 1] : ',';
        if (c == '\\')
            return false;
        if (c != '"')
            continue;
        if (quoted ? strchr(",; \t", next) == NULL : i == 0 || value.p[i - 1] != '=')
            return false;
        quoted = !quoted;
    }
    return !quoted;
}

static bool is_sound(const struct fields *fields)
{
    for (unsigned i = 0; i < fields->count; i++)
        if (fields->at[i].id == FIELD_FORWARDED && !ends_unquoted(fields->at[i].value))
            return false;
    return true;
}

/* A host with a port and an IPv6 address are not tokens and must be quoted (RFC 7239 section 6). A
 * host accepted by authority_is_valid() contains nothing to escape. */
static void pair_write(struct text *out, struct slice name, struct slice value)
{
    text_put(out, name);
    if (slice_is_token(value)) {
        text_put(out, value);
        return;
    }
    text_char(out, '"');
    text_put(out, value);
    text_char(out, '"');
}

/* RFC 7239 section 6: node = IPv4address / "[" IPv6address "]" / "unknown". */
static void node_write(struct text *out, struct slice ip)
{
    if (ip.n == 0)
        text_literal(out, "for=unknown");
    else if (memchr(ip.p, ':', ip.n)) {
        text_literal(out, "for=\"[");
        text_put(out, ip);
        text_literal(out, "]\"");
    } else
        pair_write(out, SLICE("for="), ip);
}

void forwarded_write(struct text *out, const struct fields *received,
                     const struct forwarded_element *element)
{
    text_literal(out, "Forwarded: ");
    bool keep = received && fields_have(received, FIELD_FORWARDED) && is_sound(received);
    for (unsigned i = 0; keep && i < received->count; i++)
        if (received->at[i].id == FIELD_FORWARDED && received->at[i].value.n) {
            text_put(out, received->at[i].value);
            text_literal(out, ", ");
        }
    node_write(out, element->peer_ip);
    if (element->host.n)
        pair_write(out, SLICE(";host="), element->host);
    pair_write(out, SLICE(";proto="), element->scheme);
    text_literal(out, "\r\n");
}
