/* fields.c - field lines (RFC 9112 section 5) and the Connection field (RFC 9110 section 7.6.1). */
#include "base/scan.h"
#include "http/parse.h"

/* Never forwarded, whether or not Connection names them: the list of RFC 9110 section 7.6.1,
 * Trailer (some trailers are dropped), and fields for the next hop only (RFC 9110 sections 11.7.1
 * and 11.7.2). */
static const uint64_t hop_by_hop_by_nature =
    FIELD_BIT(FIELD_CONNECTION) | FIELD_BIT(FIELD_KEEP_ALIVE) |
    FIELD_BIT(FIELD_PROXY_AUTHENTICATE) | FIELD_BIT(FIELD_PROXY_AUTHORIZATION) |
    FIELD_BIT(FIELD_PROXY_CONNECTION) | FIELD_BIT(FIELD_TE) | FIELD_BIT(FIELD_TRAILER) |
    FIELD_BIT(FIELD_TRANSFER_ENCODING) | FIELD_BIT(FIELD_UPGRADE);

#define OR_FAMILY_BIT(id) | FIELD_BIT(id)
/* Connection cannot remove these fields. Otherwise a client could change the message's framing or
 * the identity of its sender. */
static const uint64_t end_to_end_always =
    FIELD_BIT(FIELD_CONTENT_LENGTH) | FIELD_BIT(FIELD_CONTENT_TYPE) | FIELD_BIT(FIELD_DATE) |
    FIELD_BIT(FIELD_EXPECT) | FIELD_BIT(FIELD_FORWARDED) | FIELD_BIT(FIELD_HOST) |
    FIELD_BIT(FIELD_MAX_FORWARDS) | FIELD_BIT(FIELD_PROXY_CLAIM) | FIELD_BIT(FIELD_RETRY_AFTER) |
    FIELD_BIT(FIELD_VIA) | FIELD_BIT(FIELD_X_CLIENT_ID) | FIELD_BIT(FIELD_X_FORWARDED_FOR) |
    FIELD_BIT(FIELD_X_FORWARDED_HOST) | FIELD_BIT(FIELD_X_FORWARDED_PROTO) |
    FIELD_BIT(FIELD_X_REQUEST_ID) | FIELD_BIT(FIELD_X_WEIR_CLIENT) FAMILY_IDS(OR_FAMILY_BIT);

/* Each option is compared with each field, so this bounds the work. */
enum { CONNECTION_OPTIONS_MAX = 16 };

static const char *refuse_line(struct refusal *refusal, const char *why)
{
    refuse(refusal, 400, why);
    return NULL;
}

/* Returns why the name that begins at `start` is invalid at `p`. */
static const char *field_name_fault(const char *start, const char *p, const char *end)
{
    if (p == end)
        return "field line without an end";
    if (*p == ' ' || *p == '\t')
        return p == start ? "folded field line" : "space in or after a field name";
    return *p == ':' ? "empty field name" : "invalid byte in a field name";
}

/* Parses the name at `p` and returns its colon; NULL if refused. Clears CHAR_PLAIN in `*names` if
 * the name is not plain. */
static const char *name_parse(const char *p, const char *end, struct field *field, unsigned *names,
                              struct refusal *refusal)
{
    const char *start = p;
    unsigned all = CHAR_PLAIN, classes;
    for (p = scan_past_letters(p, end); p < end && *p != ':'; p++) {
        if (!((classes = char_classes[(unsigned char)*p]) & CHAR_TOKEN))
            return refuse_line(refusal, field_name_fault(start, p, end));
        all &= classes;
    }
    if (p == end || p == start)
        return refuse_line(refusal, field_name_fault(start, p, end));
    field->name = slice_between(start, p);
    field->id = (uint8_t)field_id_of(field->name);
    field->hop_by_hop = hop_by_hop_by_nature >> field->id & 1;
    *names &= all;
    return p;
}

/* Parses OWS field-value OWS CRLF after the colon. Returns the first byte of the next line; NULL if
 * refused. */
static const char *value_parse(const char *p, const char *end, struct field *field,
                               struct refusal *refusal)
{
    const char *start = p;
    while ((p = scan_to_control(p, end)) < end && *p == '\t')
        p++;
    if (!is_line_end(p, end))
        return refuse_line(refusal, p == end     ? "field line without an end"
                                    : *p == '\r' ? "bare CR in a field value"
                                                 : "control byte in a field value");
    const char *last = p;
    while (*start == ' ' || *start == '\t') /* up to the CR at the latest */
        start++;
    while (last > start && (last[-1] == ' ' || last[-1] == '\t'))
        last--;
    field->value = slice_between(start, last);
    return p + 2;
}

const char *fields_parse(const char *p, const char *end, unsigned max, struct fields *fields,
                         struct refusal *refusal)
{
    uint64_t present = 0, repeated = 0;
    unsigned count = 0, names = CHAR_PLAIN;

    while (p < end && *p != '\r') {
        if (count == max) {
            refuse(refusal, 431, "too many fields");
            return NULL;
        }
        struct field *field = &fields->at[count++];
        if ((p = name_parse(p, end, field, &names, refusal)) == NULL ||
            (p = value_parse(p + 1, end, field, refusal)) == NULL)
            return NULL;
        repeated |= present & FIELD_BIT(field->id);
        present |= FIELD_BIT(field->id);
    }
    if (!is_line_end(p, end))
        return refuse_line(refusal, "bare CR in the head");
    fields->count = count;
    fields->odd_names = !names;
    fields->present = present;
    fields->repeated = repeated;
    fields->never_indexed = 0;
    return p + 2;
}

const struct field *fields_next_named(const struct fields *f, struct slice name,
                                      const struct field *after)
{
    for (const struct field *field = after ? after + 1 : f->at; field < f->at + f->count; field++)
        if (slice_equal_nocase(field->name, name))
            return field;
    return NULL;
}

bool fields_name_coding(const struct fields *f)
{
    const struct field *field = NULL;

    while ((field = fields_next_named(f, SLICE("Content-Encoding"), field)))
        if (field->value.n && !slice_equal_nocase(field->value, SLICE("identity")))
            return true;
    return false;
}

bool connection_names(const struct fields *f, struct slice option)
{
    for (unsigned i = 0; i < f->count; i++) {
        struct slice rest = f->at[i].value, named;
        if (f->at[i].id != FIELD_CONNECTION)
            continue;
        while (slice_next_element(&rest, &named))
            if (slice_equal_nocase(named, option))
                return true;
    }
    return false;
}

bool field_is_named_away(const struct field *field)
{
    return field->hop_by_hop && !(hop_by_hop_by_nature >> field->id & 1);
}

/* --- twins: different names of one variable --------------------------------------------------- */

/* Returns the character as CGI, WSGI and similar interfaces see it. */
static char cgi_char(char c)
{
    return !char_is(c, CHAR_PLAIN) ? '-' : c >= 'A' && c <= 'Z' ? (char)(c | 0x20) : c;
}

static bool same_folded(struct slice a, struct slice b)
{
    if (a.n != b.n)
        return false;
    for (size_t i = 0; i < a.n; i++)
        if (cgi_char(a.p[i]) != cgi_char(b.p[i]))
            return false;
    return true;
}

bool names_are_twins(struct slice a, struct slice b)
{
    return same_folded(a, b) && !slice_equal_nocase(a, b);
}

/* Known names are plain, so only a name that is not plain can be a twin of one. */
bool name_is_twin_of_known(struct slice name)
{
    char room[32]; /* for a longer name, the prefix is enough: X-Forwarded-* */
    size_t n = name.n < sizeof room ? name.n : sizeof room;
    for (size_t i = 0; i < n; i++)
        room[i] = cgi_char(name.p[i]);
    return field_id_of(name) == FIELD_OTHER && field_id_of((struct slice){room, n}) != FIELD_OTHER;
}

static bool is_twin_of(struct slice name, const struct slice *names, unsigned count)
{
    bool twin = false;
    for (unsigned i = 0; i < count; i++) {
        if (slice_equal_nocase(name, names[i]))
            return false;
        twin = twin || same_folded(name, names[i]);
    }
    return twin;
}

void fields_drop_twins(struct fields *fields, const struct slice *names, unsigned count)
{
    for (struct field *field = fields->at; field < fields->at + fields->count; field++)
        if (count ? is_twin_of(field->name, names, count) : name_is_twin_of_known(field->name))
            field->hop_by_hop = true;
}

bool fields_have_twin(const struct fields *fields, const struct slice *names, unsigned count)
{
    for (unsigned i = 0; i < fields->count; i++)
        if (is_twin_of(fields->at[i].name, names, count))
            return true;
    return false;
}

void fields_drop_named(struct fields *fields, struct slice name)
{
    for (struct field *field = fields->at; field < fields->at + fields->count; field++)
        if (slice_equal_nocase(field->name, name))
            field->hop_by_hop = true;
}

/* --- Connection ------------------------------------------------------------------------------- */

/* RFC 9110 section 7.6.1 requires removal of the named fields. It also forbids naming a field
 * intended for all recipients. Most such fields have an id; credentials are compared by name. */
static bool may_be_named(const struct field *field)
{
    return !(end_to_end_always >> field->id & 1) &&
           !slice_equal_nocase(field->name, SLICE("Authorization")) &&
           !slice_equal_nocase(field->name, SLICE("Cookie"));
}

static void mark_named(struct fields *fields, struct slice option)
{
    for (unsigned i = 0; i < fields->count; i++)
        if (slice_equal_nocase(fields->at[i].name, option) && may_be_named(&fields->at[i]))
            fields->at[i].hop_by_hop = true;
}

/* Returns whether the only Connection field is "keep-alive", which is the default in HTTP/1.1.
 * Nearly all Connection fields are. */
static bool has_keep_alive_alone(const struct fields *fields)
{
    const struct field *field = fields_find(fields, FIELD_CONNECTION);
    return slice_equal(field->value, SLICE("keep-alive")) &&
           !fields_repeat(fields, FIELD_CONNECTION);
}

bool connection_options_parse(struct fields *fields, uint8_t minor, bool *keep_alive,
                              struct refusal *refusal)
{
    bool close = false, keep = minor >= 1;
    unsigned options = 0;
    const struct field *end = fields->at + fields->count;

    *keep_alive = true;
    if (has_keep_alive_alone(fields))
        return true;
    for (const struct field *field = fields_find(fields, FIELD_CONNECTION); field < end; field++) {
        if (field->id != FIELD_CONNECTION)
            continue;
        struct slice rest = field->value, option;
        while (slice_next_element(&rest, &option)) {
            if (++options > CONNECTION_OPTIONS_MAX)
                return refuse(refusal, 431, "too many Connection options");
            if (slice_equal_nocase(option, SLICE("close")))
                close = true;
            else if (slice_equal_nocase(option, SLICE("keep-alive")))
                keep = true;
            else if (slice_is_token(option))
                mark_named(fields, option);
            else
                return refuse(refusal, 400, "invalid Connection option");
        }
    }
    *keep_alive = keep && !close;
    return true;
}

uint32_t keep_alive_timeout(const struct fields *f)
{
    uint64_t least = UINT32_MAX, seconds;

    for (const struct field *field = f->at; field < f->at + f->count; field++) {
        struct slice rest = field->value, parameter;
        while (field->id == FIELD_KEEP_ALIVE && slice_next_element(&rest, &parameter))
            if (slice_starts_with_nocase(parameter, SLICE("timeout=")) &&
                slice_to_u64(slice_between(parameter.p + 8, parameter.p + parameter.n), UINT32_MAX,
                             &seconds) &&
                seconds < least)
                least = seconds;
    }
    return (uint32_t)least;
}
