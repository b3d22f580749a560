/* The first byte chooses protobuf, JSON or a framed gRPC message. Properties: no read past the end; a
 * call that is read is within its bounds, all its texts are UTF-8; the memory is within its bound; a
 * response with one status per descriptor is written, and its JSON is valid. */
#include <jansson.h>

#include "fuzz.h"
#include "service/call_reader.h"
#include "service/call_response.h"
#include "service/grpc_message.h"
#include "service/health_message.h"

static void check_text(struct slice text, bool may_be_empty)
{
    PROPERTY(text_is_utf8(text));
    PROPERTY(text.n || may_be_empty);
}

static void check_call(const struct rate_limit_call *call)
{
    check_text(call->domain, false);
    PROPERTY(call->count > 0 && call->count <= DESCRIPTORS_MAX);
    for (unsigned i = 0; i < call->count; i++) {
        const struct call_descriptor *descriptor = &call->descriptors[i];
        PROPERTY(descriptor->entry_count > 0 && descriptor->entry_count <= DESCRIPTOR_ENTRIES_MAX);
        PROPERTY(!descriptor->has_limit ||
                 (descriptor->unit > UNIT_UNKNOWN && descriptor->unit < UNIT_COUNT));
        for (unsigned j = 0; j < descriptor->entry_count; j++) {
            check_text(descriptor->entries[j].key, false);
            check_text(descriptor->entries[j].value, true);
        }
    }
}

/* Writes a response that names the texts of the call. */
static void respond(struct call_memory *memory, const struct rate_limit_call *call)
{
    struct descriptor_result results[DESCRIPTORS_MAX];
    static char bytes[DESCRIPTORS_MAX * (CALL_NAME_MAX + 64)];
    struct text out = text_over(bytes, sizeof bytes);

    for (unsigned i = 0; i < call->count; i++)
        results[i] = (struct descriptor_result){.over = call->descriptors[i].refunds,
                                                .has_limit = true,
                                                .name = call->descriptors[i].entries[0].key,
                                                .per_unit = call->descriptors[i].per_unit,
                                                .unit = i % UNIT_COUNT,
                                                .remaining = call->hits,
                                                .reset_us = (int64_t)i * 1234567 - 1};
    struct call_response response = {
        .count = call->count, .results = results, .body = call->domain};
    PROPERTY(!service_has_protobuf() || call_response_write_protobuf(memory, &response, &out));
    struct text json;
    PROPERTY(call_response_write_json(&response, &json));
    json_t *read = json_loadb(json.p, json.n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    PROPERTY(json_array_size(json_object_get(read, "statuses")) == call->count);
    json_decref(read);
    free(json.p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct call_memory memory = {0};
    struct rate_limit_call call;
    struct slice message, service;

    if (!size)
        return 0;
    char *copy = fuzz_copy(data + 1, size - 1);
    struct slice content = {copy, size - 1};
    const char *why = "";
    if (data[0] % 3 == 0)
        why = call_read_protobuf(&memory, content, &call);
    else if (data[0] % 3 == 1)
        why = call_read_json(&memory, content, &call);
    else if (grpc_message_read(content, &message) == GRPC_MESSAGE_READ)
        PROPERTY(message.n == size - 1 - GRPC_PREFIX);
    if (!why) {
        check_call(&call);
        respond(&memory, &call);
    }
    if (health_request_read(&memory, content, &service))
        PROPERTY(service.n <= content.n);
    PROPERTY(memory.total <= CALL_MEMORY_MAX);
    call_memory_free(&memory);
    free(copy);
    return 0;
}
