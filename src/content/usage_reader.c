#include "content/usage_reader.h"

#include "base/macros.h"

static const char bom[] = "\xef\xbb\xbf";

enum usage_type usage_type_of(struct slice content_type)
{
    const char *semicolon = content_type.n ? memchr(content_type.p, ';', content_type.n) : NULL;
    struct slice type = content_type;

    if (semicolon)
        type.n = (size_t)(semicolon - type.p);
    type = slice_trim_ows(type);
    if (slice_equal_nocase(type, SLICE("text/event-stream")))
        return USAGE_TYPE_EVENTS;
    if (slice_equal_nocase(type, SLICE("application/json")))
        return USAGE_TYPE_JSON;
    struct slice suffix = {type.n > 5 ? type.p + type.n - 5 : NULL, type.n > 5 ? 5 : 0};
    return slice_equal_nocase(suffix, SLICE("+json")) ? USAGE_TYPE_JSON : USAGE_TYPE_NONE;
}

/* ---- values ---------------------------------------------------------------------------------- */

/* The values of the current document follow those of the earlier ones. */
static struct usage_value *current(struct usage_reader *r)
{
    return r->values + r->paths->count;
}

static void forget(struct usage_value *values, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        values[i] = (struct usage_value){.value = -1};
}

static void take_usage(struct json_scanner *scanner, unsigned path,
                       const struct scanned_value *value)
{
    struct usage_reader *r = CONTAINER_OF(scanner, struct usage_reader, scanner);

    if (value->kind != SCANNED_INTEGER)
        return;
    r->too_large |= value->integer < 0;
    current(r)[path] = (struct usage_value){value->integer, ++r->order};
}

/* The current document is valid: its values count. */
static void keep_values(struct usage_reader *r)
{
    for (unsigned i = 0; i < r->paths->count; i++) {
        if (current(r)[i].value >= 0)
            r->values[i] = current(r)[i];
    }
    forget(current(r), r->paths->count);
}

/* ---- documents ------------------------------------------------------------------------------- */

static void begin_document(struct usage_reader *r)
{
    json_scanner_begin(&r->scanner, r->paths, take_usage, text_over(NULL, 0));
}

static void event_data(struct event_stream *events, struct slice part)
{
    struct usage_reader *r = CONTAINER_OF(events, struct usage_reader, events);

    (void)json_scanner_read(&r->scanner, part);
}

/* Events that are no JSON are skipped. */
static void event_end(struct event_stream *events)
{
    struct usage_reader *r = CONTAINER_OF(events, struct usage_reader, events);

    if (json_scanner_end(&r->scanner) == JSON_COMPLETE)
        keep_values(r);
    forget(current(r), r->paths->count);
    begin_document(r);
}

/* ---- the reader ------------------------------------------------------------------------------ */

size_t usage_reader_size(const struct json_paths *paths)
{
    return sizeof(struct usage_reader) + 2 * paths->count * sizeof(struct usage_value);
}

void usage_reader_begin(struct usage_reader *r, const struct json_paths *paths,
                        enum usage_type type, bool objects_in_array)
{
    *r = (struct usage_reader){
        .events = {.data = event_data, .end = event_end},
        .scanner = {.objects_in_array = objects_in_array, .takes_unpaired = true},
        .paths = paths,
        .type = type};
    forget(r->values, 2 * paths->count);
    event_stream_begin(&r->events);
    begin_document(r);
}

/* Skips a byte order mark at the start of the content. */
static struct slice after_bom(struct usage_reader *r, struct slice content)
{
    while (r->bom < 3 && content.n) {
        if (content.p[0] != bom[r->bom]) {
            r->invalid |= r->bom > 0;
            r->bom = 3;
            break;
        }
        r->bom++;
        content.p++;
        content.n--;
    }
    return content;
}

void usage_reader_read(struct usage_reader *r, struct slice content)
{
    content = after_bom(r, content);
    if (!content.n || r->invalid)
        return;
    if (r->type == USAGE_TYPE_EVENTS)
        event_stream_read(&r->events, content);
    else
        r->invalid = json_scanner_read(&r->scanner, content) == JSON_INVALID;
}

enum usage_result usage_reader_end(struct usage_reader *r, bool whole)
{
    if (whole && r->type == USAGE_TYPE_EVENTS) {
        event_stream_end(&r->events);
    } else if (whole && !r->invalid) {
        r->invalid = json_scanner_end(&r->scanner) == JSON_INVALID;
        if (!r->invalid)
            keep_values(r);
    }
    if (r->invalid || r->too_large)
        return USAGE_INVALID;
    if (!whole)
        return USAGE_INCOMPLETE;
    for (unsigned i = 0; i < r->paths->count; i++) {
        if (r->values[i].value >= 0)
            return USAGE_READ;
    }
    return USAGE_MISSING;
}

/* The last value of a path, also of a document that has not ended. */
static struct usage_value latest_value(const struct usage_reader *r, const struct json_path *path)
{
    struct usage_value none = {.value = -1};
    int at = json_paths_find(r->paths, path);

    if (at < 0)
        return none;
    const struct usage_value *kept = &r->values[at], *latest = kept + r->paths->count;
    return latest->value >= 0 ? *latest : *kept;
}

/* The part whose value is that of its count: no other path of the count has a later one. */
static bool is_latest(const struct usage_reader *r, const struct usage *usage,
                      const struct usage_part *part, uint32_t order)
{
    for (unsigned i = 0; i < usage->part_count; i++) {
        const struct usage_part *other = &usage->parts[i];
        if (other->count == part->count && latest_value(r, &other->path).order > order)
            return false;
    }
    return true;
}

int64_t usage_reader_sum(const struct usage_reader *r, const struct usage *usage)
{
    __int128 sum = 0;
    bool seen = false;

    for (unsigned i = 0; i < usage->part_count; i++) {
        const struct usage_part *part = &usage->parts[i];
        struct usage_value value = latest_value(r, &part->path);
        if (value.value < 0 || !is_latest(r, usage, part, value.order))
            continue;
        seen = true;
        sum += (__int128)value.value * part->weight;
    }
    if (!seen || r->too_large)
        return -1;
    sum = sum < 0 ? 0 : (sum + USAGE_WEIGHT_ONE - 1) / USAGE_WEIGHT_ONE;
    return sum > JSON_INTEGER_MAX ? -1 : (int64_t)sum;
}
