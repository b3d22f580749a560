#include "proxy/request_content.h"

/* ---- Content-Type ---------------------------------------------------------------------------- */

/* Returns the text after the next `word` in any letter case; p NULL: there is none. */
static struct slice text_after(struct slice text, struct slice word)
{
    while (text.n >= word.n && !slice_starts_with_nocase(text, word))
        text = (struct slice){text.p + 1, text.n - 1};
    return text.n < word.n ? SLICE_NONE : (struct slice){text.p + word.n, text.n - word.n};
}

static bool is_ascii(struct slice content)
{
    unsigned char all = 0;

    for (size_t i = 0; i < content.n; i++)
        all |= (unsigned char)content.p[i];
    return all < 0x80;
}

/* `parameter`: what stands after "charset". */
static bool is_utf8(struct slice parameter, struct slice content)
{
    bool quoted = slice_starts_with(parameter, SLICE("=\""));
    size_t start = quoted ? 2 : 1, end = start;

    if (!slice_starts_with(parameter, SLICE("=")))
        return false;
    while (end < parameter.n && !memchr("\"; \t", parameter.p[end], 4))
        end++;
    struct slice charset = {parameter.p + start, end - start};
    return slice_equal_nocase(charset, SLICE("utf-8")) ||
           slice_equal_nocase(charset, SLICE("utf8")) ||
           (slice_equal_nocase(charset, SLICE("us-ascii")) && is_ascii(content));
}

static bool has_separator(struct slice content)
{
    return memchr(content.p, '&', content.n) || memchr(content.p, ';', content.n);
}

/* Returns whether servers that go by this Content-Type may find other names in the JSON: in another
 * charset such as UTF-7, or between the separators of a form. */
static bool type_has_other_names(struct slice type, struct slice content)
{
    struct slice rest = type;

    while ((rest = text_after(rest, SLICE("charset"))).p)
        if (!is_utf8(rest, content))
            return true;
    if (text_after(type, SLICE("multipart/")).p)
        return true;
    return (!type.n || text_after(type, SLICE("form-urlencoded")).p) && has_separator(content);
}

/* Some servers read content without a Content-Type as a form. */
static bool has_other_names(const struct fields *fields, struct slice content)
{
    const struct field *field = fields_find(fields, FIELD_CONTENT_TYPE);

    if (!field)
        return type_has_other_names(SLICE_NONE, content);
    while (field && !type_has_other_names(field->value, content))
        field = fields_next_named(fields, SLICE("Content-Type"), field);
    return field != NULL;
}

/* ---- values ---------------------------------------------------------------------------------- */

enum content_result request_content_is_plain(const struct fields *fields, struct slice content)
{
    if (fields_name_coding(fields))
        return CONTENT_COMPRESSED;
    return content.n == 0 || has_other_names(fields, content) ? CONTENT_INVALID : CONTENT_READ;
}

enum content_result request_content_values(const struct fields *fields, struct slice content,
                                           const struct json_paths *paths,
                                           struct json_values *values)
{
    enum content_result result = request_content_is_plain(fields, content);

    json_values_clear(values);
    if (result == CONTENT_COMPRESSED)
        return result;
    if (!json_values_read(values, paths, content))
        return CONTENT_INVALID;
    values->doubtful = result != CONTENT_READ;
    return result;
}

enum content_result request_content_read(struct exchange *x, const struct json_paths *paths,
                                         struct json_values *values)
{
    enum content_result result = CONTENT_TOO_LARGE;

    json_values_clear(values);
    if (request_content_is_whole(x))
        result = request_content_values(&x->worker->incoming.head->fields, request_content_kept(x),
                                        paths, values);
    if (x->request.inspection != INSPECTION_COUNTED)
        counter_add(&x->worker->stats.content_inspected[CONTENT_OF_REQUEST][result], 1);
    x->request.inspection = INSPECTION_COUNTED;
    return result;
}

enum cause request_content_refusal(enum content_result result, const char **why)
{
    switch (result) {
    case CONTENT_TOO_LARGE:
        *why = "a rule matches on it; see size_limits.inspected_content";
        return CAUSE_CONTENT_TOO_LARGE;
    case CONTENT_COMPRESSED:
        *why = "a rule matches on the content, which is compressed";
        return CAUSE_BAD_REQUEST;
    case CONTENT_READ:
        *why = "a rule matches on a value in the content that servers may read differently: its "
               "name stands twice, or it contains U+0000 or is longer than 256 bytes";
        return CAUSE_BAD_REQUEST;
    default:
        *why = "a rule matches on the content, which is no valid JSON object, or which servers may "
               "read differently by its Content-Type; send application/json";
        return CAUSE_BAD_REQUEST;
    }
}
