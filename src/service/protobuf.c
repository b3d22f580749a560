/* protobuf.c - messages from and to protobuf, with protobuf-c. protobuf_none.c has the stubs for
 * builds without it. */
#include "config.h"

#ifdef HAVE_PROTOBUF_C

#include "http/response.h"
#include "service/call_check.h"
#include "service/call_reader.h"
#include "service/call_response.h"
#include "service/health_message.h"
#include "service/wire.pb-c.h"

bool service_has_protobuf(void)
{
    return true;
}

/* ---- reading --------------------------------------------------------------------------------- */

static void *allocate(void *memory, size_t size)
{
    return call_memory_get(memory, size);
}

static void free_nothing(void *memory, void *pointer)
{
    (void)memory, (void)pointer; /* call_memory_reset() frees it */
}

static ProtobufCAllocator allocator_over(struct call_memory *memory)
{
    return (ProtobufCAllocator){.alloc = allocate, .free = free_nothing, .allocator_data = memory};
}

static struct slice slice_of_bytes(ProtobufCBinaryData bytes)
{
    return (struct slice){(const char *)bytes.data, bytes.len};
}

static const char *read_descriptor(struct call_memory *memory, const Wire__Descriptor *from,
                                   struct call_descriptor *descriptor)
{
    struct descriptor_entry *entries;

    *descriptor = (struct call_descriptor){.refunds = from->is_negative_hits};
    if (from->hits_addend) {
        descriptor->has_hits = true;
        descriptor->hits = from->hits_addend->value;
    }
    if (from->limit) {
        descriptor->has_limit = true;
        descriptor->unit = (unsigned)from->limit->unit;
        descriptor->per_unit = from->limit->requests_per_unit;
    }
    if (from->n_entries > DESCRIPTOR_ENTRIES_MAX)
        return call_too_many_entries;
    if (!(entries = call_memory_get(memory, from->n_entries * sizeof *entries)))
        return call_too_much_memory;
    for (size_t i = 0; i < from->n_entries; i++) {
        entries[i].key = slice_of_bytes(from->entries[i]->key);
        entries[i].value = slice_of_bytes(from->entries[i]->value);
    }
    descriptor->entries = entries;
    descriptor->entry_count = (unsigned)from->n_entries;
    return NULL;
}

const char *call_read_protobuf(struct call_memory *memory, struct slice message,
                               struct rate_limit_call *call)
{
    ProtobufCAllocator allocator = allocator_over(memory);
    Wire__RateLimitRequest *from =
        wire__rate_limit_request__unpack(&allocator, message.n, (const uint8_t *)message.p);
    struct call_descriptor *descriptors;
    const char *why;

    if (!from)
        return "the message is malformed, or too complex";
    if (from->n_descriptors > DESCRIPTORS_MAX)
        return call_too_many_descriptors;
    if (!(descriptors = call_memory_get(memory, from->n_descriptors * sizeof *descriptors)))
        return call_too_much_memory;
    for (size_t i = 0; i < from->n_descriptors; i++)
        if ((why = read_descriptor(memory, from->descriptors[i], &descriptors[i])))
            return why;
    *call = (struct rate_limit_call){.domain = slice_of_bytes(from->domain),
                                     .hits = from->hits_addend,
                                     .descriptors = descriptors,
                                     .count = (unsigned)from->n_descriptors};
    return call_check(call);
}

bool health_request_read(struct call_memory *memory, struct slice message, struct slice *service)
{
    ProtobufCAllocator allocator = allocator_over(memory);
    const Wire__HealthCheckRequest *from =
        wire__health_check_request__unpack(&allocator, message.n, (const uint8_t *)message.p);

    if (!from)
        return false;
    *service = slice_of_bytes(from->service);
    return true;
}

/* ---- writing --------------------------------------------------------------------------------- */

static ProtobufCBinaryData bytes_of(struct slice slice)
{
    return (ProtobufCBinaryData){slice.n, (uint8_t *)(uintptr_t)slice.p};
}

static Wire__Value *value_of(struct call_memory *memory, const struct metadata *from);

/* The members of all maps, each key once. */
static Wire__Struct *struct_of(struct call_memory *memory, const struct metadata *const *maps,
                               unsigned map_count)
{
    Wire__Struct *to = call_memory_get(memory, sizeof *to);
    size_t count = 0;

    for (unsigned i = 0; i < map_count; i++)
        count += maps[i]->count;
    if (!to)
        return NULL;
    wire__struct__init(to);
    Wire__Member *members = call_memory_get(memory, count * sizeof *members);
    if (!members || !(to->fields = call_memory_get(memory, count * sizeof *to->fields)))
        return NULL;
    for (unsigned i = 0; i < map_count; i++)
        for (unsigned j = 0; j < maps[i]->count; j++) {
            const struct metadata *item = &maps[i]->items[j];
            Wire__Member *member = &members[to->n_fields];
            if (call_metadata_has(maps + i + 1, map_count - i - 1, item->key))
                continue;
            wire__member__init(member);
            member->key = bytes_of(item->key);
            if (!(member->value = value_of(memory, item)))
                return NULL;
            to->fields[to->n_fields++] = member;
        }
    return to;
}

static Wire__ListValue *list_of(struct call_memory *memory, const struct metadata *from)
{
    Wire__ListValue *to = call_memory_get(memory, sizeof *to);

    if (!to)
        return NULL;
    wire__list_value__init(to);
    to->n_values = from->count;
    if (!(to->values = call_memory_get(memory, to->n_values * sizeof *to->values)))
        return NULL;
    for (size_t i = 0; i < to->n_values; i++)
        if (!(to->values[i] = value_of(memory, &from->items[i])))
            return NULL;
    return to;
}

/* Recursive, at most METADATA_DEPTH_MAX deep. */
static Wire__Value *value_of(struct call_memory *memory, const struct metadata *from)
{
    Wire__Value *to = call_memory_get(memory, sizeof *to);

    if (!to)
        return NULL;
    wire__value__init(to);
    switch (from->kind) {
    case METADATA_NULL: to->kind_case = WIRE__VALUE__KIND_NULL_VALUE; return to;
    case METADATA_BOOL:
        to->kind_case = WIRE__VALUE__KIND_BOOL_VALUE;
        to->bool_value = from->is_true;
        return to;
    case METADATA_NUMBER:
        to->kind_case = WIRE__VALUE__KIND_NUMBER_VALUE;
        to->number_value = from->number;
        return to;
    case METADATA_TEXT:
        to->kind_case = WIRE__VALUE__KIND_STRING_VALUE;
        to->string_value = bytes_of(from->text);
        return to;
    case METADATA_LIST:
        to->kind_case = WIRE__VALUE__KIND_LIST_VALUE;
        return (to->list_value = list_of(memory, from)) ? to : NULL;
    case METADATA_MAP:
        to->kind_case = WIRE__VALUE__KIND_STRUCT_VALUE;
        return (to->struct_value = struct_of(memory, &from, 1)) ? to : NULL;
    }
    return NULL;
}

/* The messages of one status. */
struct status_room {
    Wire__Status status;
    Wire__RateLimit limit;
    Wire__Duration reset;
};

enum { CODE_OK = 1, CODE_OVER_LIMIT = 2 };

static int32_t wire_code(bool over)
{
    return over ? CODE_OVER_LIMIT : CODE_OK;
}

static Wire__Status *pack_status(struct status_room *room, const struct descriptor_result *from)
{
    wire__status__init(&room->status);
    room->status.code = wire_code(from->over);
    room->status.limit_remaining = from->remaining;
    if (from->has_limit) {
        wire__rate_limit__init(&room->limit);
        room->limit.name = bytes_of(call_name_sent(from->name));
        room->limit.requests_per_unit = from->per_unit;
        room->limit.unit = (int32_t)from->unit;
        room->status.current_limit = &room->limit;
    }
    if (from->reset_us >= 0) {
        wire__duration__init(&room->reset);
        room->reset.seconds = from->reset_us / 1000000;
        room->reset.nanos = (int32_t)(from->reset_us % 1000000 * 1000);
        room->status.duration_until_reset = &room->reset;
    }
    return &room->status;
}

enum { HEADERS_MAX = 32 };

static bool pack(const ProtobufCMessage *message, struct text *out)
{
    size_t size = protobuf_c_message_get_packed_size(message);

    if (!text_has_room(out, size))
        return false;
    out->n += protobuf_c_message_pack(message, (uint8_t *)out->p + out->n);
    return true;
}

bool call_response_write_protobuf(struct call_memory *memory, const struct call_response *response,
                                  struct text *out)
{
    struct status_room rooms[DESCRIPTORS_MAX];
    Wire__Status *statuses[DESCRIPTORS_MAX];
    Wire__HeaderValue headers[HEADERS_MAX], *header_pointers[HEADERS_MAX];
    Wire__RateLimitResponse to = WIRE__RATE_LIMIT_RESPONSE__INIT;
    struct slice lines = response->header_lines, name, value;

    for (unsigned i = 0; i < response->count; i++)
        statuses[i] = pack_status(&rooms[i], &response->results[i]);
    while (to.n_response_headers_to_add < HEADERS_MAX &&
           response_next_line(&lines, &name, &value)) {
        Wire__HeaderValue *header = &headers[to.n_response_headers_to_add];
        wire__header_value__init(header);
        header->key = bytes_of(name);
        header->value = bytes_of(value);
        header_pointers[to.n_response_headers_to_add++] = header;
    }
    to.overall_code = wire_code(response->over);
    to.statuses = statuses;
    to.n_statuses = response->count;
    to.response_headers_to_add = header_pointers;
    to.raw_body = bytes_of(response->body);
    if (response->metadata_count &&
        !(to.dynamic_metadata = struct_of(memory, response->metadata, response->metadata_count)))
        return false;
    return pack(&to.base, out);
}

bool health_response_write(unsigned status, struct text *out)
{
    Wire__HealthCheckResponse to = WIRE__HEALTH_CHECK_RESPONSE__INIT;

    to.status = (int32_t)status;
    return pack(&to.base, out);
}

#endif
