/* call_json.c - calls from proto3 JSON, and responses as proto3 JSON. */
#include <jansson.h>
#include <openssl/evp.h>

#include "base/json_read.h"
#include "base/json_writer.h"
#include "base/library_memory.h"
#include "http/response.h"
#include "service/call_check.h"
#include "service/call_reader.h"
#include "service/call_response.h"

/* ---- reading: values ------------------------------------------------------------------------- */

static const char malformed[] = "the content is no valid JSON";
static const char wrong_type[] = "a value of a wrong type";
static const char not_in_range[] = "a number that is not in the range of its type";

/* 9007199254740992: from here on doubles are not exact. */
#define EXACT_MAX 9007199254740992.0

static const char *u64_of_number(const json_t *value, uint64_t *number)
{
    double real = json_number_value(value);

    if (json_is_integer(value) && json_integer_value(value) >= 0) {
        *number = (uint64_t)json_integer_value(value);
        return NULL;
    }
    if (!json_is_real(value) || !(real >= 0 && real <= EXACT_MAX) || real != (double)(uint64_t)real)
        return not_in_range;
    *number = (uint64_t)real;
    return NULL;
}

/* Integers may be written as numbers, also as 1e3, and as strings of these. */
static const char *read_u64(const json_t *value, uint64_t max, uint64_t *number)
{
    const char *why = wrong_type;

    if (json_is_number(value))
        why = u64_of_number(value, number);
    else if (json_is_string(value) && !slice_to_u64(json_text(value), UINT64_MAX, number)) {
        struct slice text = json_text(value);
        bool tight = text.n && text.p[0] > ' ' && text.p[text.n - 1] > ' ';
        json_t *inner = tight ? json_loadb(text.p, text.n, JSON_DECODE_ANY, NULL) : NULL;
        why = json_is_number(inner) ? u64_of_number(inner, number) : wrong_type;
        json_decref(inner);
    } else if (json_is_string(value))
        why = NULL;
    return why ? why : *number > max ? not_in_range : NULL;
}

/* Reads the value of a member, which is not null, into a field. Returns NULL, or why it is
 * malformed. */
typedef const char *member_reader(struct call_memory *memory, const json_t *value, void *field);

static const char *read_u32(struct call_memory *memory, const json_t *value, void *field)
{
    uint64_t wide = 0;
    const char *why = read_u64(value, UINT32_MAX, &wide);
    (void)memory;

    *(uint32_t *)field = (uint32_t)wide;
    return why;
}

static const char *read_text(struct call_memory *memory, const json_t *value, void *field)
{
    (void)memory;
    *(struct slice *)field = json_text(value);
    return json_is_string(value) ? NULL : wrong_type;
}

static const char *const unit_name[UNIT_COUNT] = {"UNKNOWN", "SECOND", "MINUTE", "HOUR",
                                                  "DAY",     "MONTH",  "YEAR",   "WEEK"};

static const char *read_unit(struct call_memory *memory, const json_t *value, void *field)
{
    unsigned *unit = field;
    uint64_t number = 0;
    (void)memory;

    for (*unit = 0; json_is_string(value) && *unit < UNIT_COUNT; ++*unit)
        if (slice_equal(json_text(value), slice_of(unit_name[*unit])))
            return NULL;
    if (json_is_string(value))
        return "an unknown name of a unit";
    const char *why = read_u64(value, INT32_MAX, &number);
    *unit = (unsigned)number;
    return why;
}

/* ---- reading: messages ----------------------------------------------------------------------- */

struct member {
    const char *name, *other_name; /* lowerCamelCase; as in the .proto file */
    member_reader *read;
    size_t offset; /* of the field in the struct that is read; 0: also the struct itself */
};

static const char *read_message(struct call_memory *memory, const json_t *object,
                                const struct member *members, unsigned count, void *to)
{
    unsigned seen = 0;

    if (!json_is_object(object))
        return wrong_type;
    json_t *unconst = (json_t *)(uintptr_t)object;
    for (void *at = json_object_iter(unconst); at; at = json_object_iter_next(unconst, at)) {
        const char *name = json_object_iter_key(at), *why;
        unsigned i = 0;
        while (i < count && strcmp(name, members[i].name) != 0 &&
               strcmp(name, members[i].other_name) != 0)
            i++;
        if (i == count)
            return "an unknown name";
        if (seen >> i & 1)
            return "a name that stands twice";
        seen |= 1u << i;
        const json_t *value = json_object_iter_value(at);
        if (!json_is_null(value) &&
            (why = members[i].read(memory, value, (char *)to + members[i].offset)))
            return why;
    }
    return NULL;
}

static const struct member entry_members[] = {
    {"key", "key", read_text, offsetof(struct descriptor_entry, key)},
    {"value", "value", read_text, offsetof(struct descriptor_entry, value)}};

static const struct member limit_members[] = {
    {"requestsPerUnit", "requests_per_unit", read_u32, offsetof(struct call_descriptor, per_unit)},
    {"unit", "unit", read_unit, offsetof(struct call_descriptor, unit)}};

static const char *read_descriptor_limit(struct call_memory *memory, const json_t *value,
                                         void *field)
{
    ((struct call_descriptor *)field)->has_limit = true;
    return read_message(memory, value, limit_members, COUNT_OF(limit_members), field);
}

static const char *read_descriptor_hits(struct call_memory *memory, const json_t *value,
                                        void *field)
{
    struct call_descriptor *to = field;
    (void)memory;

    to->has_hits = true;
    return read_u64(value, UINT64_MAX, &to->hits);
}

static const char *read_descriptor_refunds(struct call_memory *memory, const json_t *value,
                                           void *field)
{
    (void)memory;
    ((struct call_descriptor *)field)->refunds = json_is_true(value);
    return json_is_boolean(value) ? NULL : wrong_type;
}

/* Reads a list of messages of `size` bytes into new memory. */
static const char *read_list(struct call_memory *memory, const json_t *list,
                             const struct member *members, unsigned member_count, size_t size,
                             void **messages)
{
    size_t count = json_array_size(list);
    const char *why = json_is_array(list) ? NULL : wrong_type;

    if (why || !(*messages = call_memory_get(memory, count * size)))
        return why ? why : call_too_much_memory;
    memset(*messages, 0, count * size);
    for (size_t i = 0; i < count && !why; i++)
        why = read_message(memory, json_array_get(list, i), members, member_count,
                           (char *)*messages + i * size);
    return why;
}

static const char *read_descriptor_entries(struct call_memory *memory, const json_t *value,
                                           void *field)
{
    struct call_descriptor *to = field;
    void *entries = NULL;

    if (json_array_size(value) > DESCRIPTOR_ENTRIES_MAX)
        return call_too_many_entries;
    const char *why = read_list(memory, value, entry_members, COUNT_OF(entry_members),
                                sizeof *to->entries, &entries);
    to->entries = entries;
    to->entry_count = (unsigned)json_array_size(value);
    return why;
}

static const struct member descriptor_members[] = {
    {"entries", "entries", read_descriptor_entries, 0},
    {"limit", "limit", read_descriptor_limit, 0},
    {"hitsAddend", "hits_addend", read_descriptor_hits, 0},
    {"isNegativeHits", "is_negative_hits", read_descriptor_refunds, 0}};

static const char *read_call_descriptors(struct call_memory *memory, const json_t *value,
                                         void *field)
{
    struct rate_limit_call *to = field;
    void *descriptors = NULL;

    if (json_array_size(value) > DESCRIPTORS_MAX)
        return call_too_many_descriptors;
    const char *why = read_list(memory, value, descriptor_members, COUNT_OF(descriptor_members),
                                sizeof *to->descriptors, &descriptors);
    to->descriptors = descriptors;
    to->count = (unsigned)json_array_size(value);
    return why;
}

static const struct member call_members[] = {
    {"domain", "domain", read_text, offsetof(struct rate_limit_call, domain)},
    {"descriptors", "descriptors", read_call_descriptors, 0},
    {"hitsAddend", "hits_addend", read_u32, offsetof(struct rate_limit_call, hits)}};

/* ---- reading: the content -------------------------------------------------------------------- */

/* Copies a text, which belongs to the document. */
static bool store_text(struct call_memory *memory, struct slice *text)
{
    char *copy = call_memory_get(memory, text->n);

    if (copy && text->n)
        memcpy(copy, text->p, text->n);
    text->p = copy;
    return copy != NULL;
}

static bool keep_texts(struct call_memory *memory, struct rate_limit_call *call)
{
    bool good = store_text(memory, &call->domain);

    for (unsigned i = 0; i < call->count; i++)
        for (unsigned j = 0; j < call->descriptors[i].entry_count && good; j++) {
            struct descriptor_entry *entry =
                (struct descriptor_entry *)(uintptr_t)&call->descriptors[i].entries[j];
            good = store_text(memory, &entry->key) && store_text(memory, &entry->value);
        }
    return good;
}

static const char *read_document(struct call_memory *memory, struct slice text,
                                 struct rate_limit_call *call)
{
    json_t *document = json_loadb(text.p, text.n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    const char *why = malformed;

    *call = (struct rate_limit_call){0};
    if (document)
        why = read_message(memory, document, call_members, COUNT_OF(call_members), call);
    if (!why)
        why = call_check(call);
    if (!why && !keep_texts(memory, call))
        why = call_too_much_memory;
    json_decref(document);
    return why;
}

const char *call_read_json(struct call_memory *memory, struct slice text,
                           struct rate_limit_call *call)
{
    (void)library_memory_failed_here();
    const char *why = read_document(memory, text, call);

    if (why && library_memory_failed_here()) /* the content may be valid */
        memory->lacks = true;
    return why;
}

/* ---- writing --------------------------------------------------------------------------------- */

static const char *code_name(bool over)
{
    return over ? "OVER_LIMIT" : "OK";
}

/* "1.5s": with 0, 3 or 6 decimal places. */
static void put_duration(struct json_writer *json, const char *key, int64_t us)
{
    char bytes[40];
    struct text text = text_over(bytes, sizeof bytes);
    int64_t fraction = us % 1000000;

    text_i64(&text, us / 1000000);
    if (fraction % 1000)
        text_printf(&text, ".%06d", (int)fraction);
    else if (fraction)
        text_printf(&text, ".%03d", (int)fraction / 1000);
    text_char(&text, 's');
    json_put_slice(json, key, text_slice(&text));
}

static void put_current_limit(struct json_writer *json, const struct descriptor_result *result)
{
    json_begin(json, "currentLimit", '{');
    if (result->per_unit)
        json_put_u64(json, "requestsPerUnit", result->per_unit);
    if (result->unit != UNIT_UNKNOWN)
        json_put_text(json, "unit", unit_name[result->unit]);
    if (result->name.n)
        json_put_slice(json, "name", call_name_sent(result->name));
    json_end(json, '}');
}

static void put_status(struct json_writer *json, const struct descriptor_result *result)
{
    json_begin(json, NULL, '{');
    json_put_text(json, "code", code_name(result->over));
    if (result->has_limit)
        put_current_limit(json, result);
    if (result->remaining)
        json_put_u64(json, "limitRemaining", result->remaining);
    if (result->reset_us >= 0)
        put_duration(json, "durationUntilReset", result->reset_us);
    json_end(json, '}');
}

static void put_headers(struct json_writer *json, struct slice lines)
{
    struct slice name, value;
    bool any = false;

    while (response_next_line(&lines, &name, &value)) {
        if (!any)
            json_begin(json, "responseHeadersToAdd", '[');
        any = true;
        json_begin(json, NULL, '{');
        json_put_slice(json, "key", name);
        if (value.n)
            json_put_slice(json, "value", value);
        json_end(json, '}');
    }
    if (any)
        json_end(json, ']');
}

static bool put_base64(struct json_writer *json, const char *key, struct slice bytes)
{
    unsigned char *text = malloc((bytes.n + 2) / 3 * 4 + 1);

    if (!text)
        return false;
    (void)EVP_EncodeBlock(text, (const unsigned char *)bytes.p, (int)bytes.n);
    json_put_text(json, key, (const char *)text);
    free(text);
    return true;
}

/* Recursive, at most METADATA_DEPTH_MAX deep. */
static void put_metadata_value(struct json_writer *json, const struct metadata *value)
{
    char bytes[400];

    switch (value->kind) {
    case METADATA_NULL: json_put_null(json, NULL); break;
    case METADATA_BOOL: json_put_bool(json, NULL, value->is_true); break;
    case METADATA_NUMBER: {
        struct text text = text_over(bytes, sizeof bytes);
        text_printf(&text, "%.17g", value->number);
        json_put_verbatim(json, NULL, text_slice(&text));
        break;
    }
    case METADATA_TEXT: json_put_slice(json, NULL, value->text); break;
    case METADATA_LIST:
        json_begin(json, NULL, '[');
        for (unsigned i = 0; i < value->count; i++)
            put_metadata_value(json, &value->items[i]);
        json_end(json, ']');
        break;
    case METADATA_MAP:
        json_begin(json, NULL, '{');
        for (unsigned i = 0; i < value->count; i++) {
            json_put_key(json, value->items[i].key);
            put_metadata_value(json, &value->items[i]);
        }
        json_end(json, '}');
        break;
    }
}

static void put_metadata(struct json_writer *json, const struct call_response *response)
{
    json_begin(json, "dynamicMetadata", '{');
    for (unsigned i = 0; i < response->metadata_count; i++)
        for (unsigned j = 0; j < response->metadata[i]->count; j++) {
            const struct metadata *item = &response->metadata[i]->items[j];
            if (call_metadata_has(response->metadata + i + 1, response->metadata_count - i - 1,
                                  item->key))
                continue;
            json_put_key(json, item->key);
            put_metadata_value(json, item);
        }
    json_end(json, '}');
}

bool call_response_write_json(const struct call_response *response, struct text *out)
{
    struct json_writer json = json_writer_growing(out);
    bool good = true;

    json_begin(&json, NULL, '{');
    json_put_text(&json, "overallCode", code_name(response->over));
    json_begin(&json, "statuses", '[');
    for (unsigned i = 0; i < response->count; i++)
        put_status(&json, &response->results[i]);
    json_end(&json, ']');
    put_headers(&json, response->header_lines);
    if (response->body.n)
        good = put_base64(&json, "rawBody", response->body);
    if (response->metadata_count)
        put_metadata(&json, response);
    json_end(&json, '}');
    return good && !out->failed;
}
