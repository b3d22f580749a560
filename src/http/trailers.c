#include "http/trailers.h"

#include "http/field_line.h"
#include "http/parse.h"

/* ---- which fields are not forwarded ---------------------------------------------------------- */

enum { NAME_MAX_COMPARED = 32 }; /* longer than every name here */

/* Fields without an id, in lower case. Those with one are never forwarded. */
static const struct slice forbidden[] = {
    SLICE("age"),
    SLICE("authentication-info"),
    SLICE("authorization"),
    SLICE("cache-control"),
    SLICE("clear-site-data"),
    SLICE("content-disposition"),
    SLICE("content-encoding"),
    SLICE("content-language"),
    SLICE("content-location"),
    SLICE("content-range"),
    SLICE("content-security-policy"),
    SLICE("cookie"),
    SLICE("expires"),
    SLICE("if-match"),
    SLICE("if-modified-since"),
    SLICE("if-none-match"),
    SLICE("if-range"),
    SLICE("if-unmodified-since"),
    SLICE("location"),
    SLICE("origin"),
    SLICE("pragma"),
    SLICE("proxy-authentication-info"),
    SLICE("range"),
    SLICE("refresh"),
    SLICE("set-cookie"),
    SLICE("strict-transport-security"),
    SLICE("vary"),
    SLICE("warning"),
    SLICE("www-authenticate"),
};

/* Compares as CGI and similar interfaces do, which take "_" and "-" for the same character. Names
 * with an id, and their twins, are forbidden: weir interprets these fields. */
static bool is_forbidden(struct slice name)
{
    char bytes[NAME_MAX_COMPARED];
    struct slice folded = {bytes, name.n < sizeof bytes ? name.n : sizeof bytes};

    for (size_t i = 0; i < folded.n; i++) {
        char c = name.p[i];
        bytes[i] = (char)(!char_is(c, CHAR_PLAIN) ? '-' : c >= 'A' && c <= 'Z' ? c | 0x20 : c);
    }
    if (field_id_of(name) != FIELD_OTHER || field_id_of(folded) != FIELD_OTHER)
        return true;
    for (size_t i = 0; i < COUNT_OF(forbidden); i++)
        if (slice_equal(folded, forbidden[i]))
            return true;
    return slice_starts_with(folded, SLICE("access-control-")) ||
           slice_starts_with(folded, SLICE("x-forwarded-"));
}

/* ---- parsing and writing --------------------------------------------------------------------- */

bool trailers_parse(struct slice text, struct fields *trailers, const char **why)
{
    struct refusal refusal;

    if (!fields_parse(text.p, text.p + text.n, TRAILER_FIELDS_MAX, trailers, &refusal)) {
        *why = refusal.status == 431 ? "too many trailers" : refusal.why;
        return false;
    }
    for (struct field *field = trailers->at; field < trailers->at + trailers->count; field++)
        field->hop_by_hop = is_forbidden(field->name);
    return true;
}

bool trailers_any(const struct fields *trailers)
{
    for (unsigned i = 0; i < trailers->count; i++)
        if (!trailers->at[i].hop_by_hop)
            return true;
    return false;
}

void trailers_write(struct text *out, const struct fields *trailers)
{
    for (const struct field *field = trailers->at; field < trailers->at + trailers->count; field++)
        if (!field->hop_by_hop)
            field_line_put(out, field->name, field->value);
}

/* ---- TE -------------------------------------------------------------------------------------- */

bool te_accepts_trailers(const struct request_head *head, enum http_version version)
{
    return (!http_version_has_connection_fields(version) ||
            (head->minor > 0 && connection_names(&head->fields, SLICE("te")))) &&
           fields_accept_trailers(&head->fields);
}

bool fields_accept_trailers(const struct fields *fields)
{
    for (unsigned i = 0; i < fields->count; i++) {
        struct slice rest = fields->at[i].value, coding;
        while (fields->at[i].id == FIELD_TE && slice_next_element(&rest, &coding))
            if (slice_equal_nocase(coding, SLICE("trailers")))
                return true;
    }
    return false;
}
