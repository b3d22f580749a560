/* Messages of the rate limit service: protobuf and proto3 JSON, in both directions. */
#include "base/text.h"
#include "run_suite.h"
#include "service/call_reader.h"
#include "service/call_response.h"
#include "service/grpc_message.h"
#include "service/health_message.h"

static struct call_memory memory;

static void reset(void)
{
    call_memory_free(&memory);
}

/* ---- protobuf, byte by byte ------------------------------------------------------------------ */

struct bytes {
    char at[128 * 1024];
    struct text text;
};

static struct text *begin(struct bytes *bytes)
{
    bytes->text = text_over(bytes->at, sizeof bytes->at);
    return &bytes->text;
}

static void varint(struct text *out, uint64_t value)
{
    for (; value > 127; value >>= 7)
        text_char(out, (char)(0x80 | (value & 127)));
    text_char(out, (char)value);
}

static void put_number(struct text *out, unsigned field, uint64_t value)
{
    varint(out, field << 3);
    varint(out, value);
}

static void put_bytes(struct text *out, unsigned field, struct slice value)
{
    varint(out, field << 3 | 2);
    varint(out, value.n);
    text_put(out, value);
}

static void put_message(struct text *out, unsigned field, const struct bytes *message)
{
    put_bytes(out, field, text_slice(&message->text));
}

static struct bytes entry, descriptor, request, inner;

static void put_entry(struct slice key, struct slice value)
{
    struct text *out = begin(&entry);
    put_bytes(out, 1, key);
    put_bytes(out, 2, value);
    put_message(&descriptor.text, 1, &entry);
}

static const char *read_request(struct rate_limit_call *call)
{
    ck_assert(!request.text.failed && !descriptor.text.failed);
    return call_read_protobuf(&memory, text_slice(&request.text), call);
}

static bool is(struct slice text, const char *expected)
{
    return slice_equal(text, slice_of(expected));
}

START_TEST(a_call_has_all_its_fields)
{
    struct rate_limit_call call;

    begin(&request);
    put_bytes(&request.text, 1, SLICE("edge"));
    begin(&descriptor);
    put_entry(SLICE("remote_address"), SLICE("50.0.0.5"));
    put_entry(SLICE("path"), SLICE("a\0b"));
    put_message(&request.text, 2, &descriptor);
    begin(&descriptor);
    put_entry(SLICE("plan"), SLICE(""));
    put_number(begin(&inner), 1, 100);
    put_number(&inner.text, 2, UNIT_WEEK);
    put_message(&descriptor.text, 2, &inner);
    put_number(begin(&inner), 1, UINT64_MAX);
    put_message(&descriptor.text, 3, &inner);
    put_number(&descriptor.text, 4, 1);
    put_message(&request.text, 2, &descriptor);
    begin(&descriptor);
    put_entry(SLICE("k"), SLICE("v"));
    begin(&inner); /* a UInt64Value of 0 has no bytes */
    put_message(&descriptor.text, 3, &inner);
    put_message(&request.text, 2, &descriptor);
    put_number(&request.text, 3, 7);
    put_bytes(&request.text, 99, SLICE("unknown fields are skipped"));
    ck_assert_ptr_null(read_request(&call));
    ck_assert(is(call.domain, "edge") && call.hits == 7 && call.count == 3);
    const struct call_descriptor *d = call.descriptors;
    ck_assert(d[0].entry_count == 2 && !d[0].has_hits && !d[0].has_limit && !d[0].refunds);
    ck_assert(is(d[0].entries[0].key, "remote_address") && is(d[0].entries[0].value, "50.0.0.5"));
    ck_assert(slice_equal(d[0].entries[1].value, SLICE("a\0b")));
    ck_assert(d[1].has_hits && d[1].hits == UINT64_MAX && d[1].refunds);
    ck_assert(d[1].has_limit && d[1].unit == UNIT_WEEK && d[1].per_unit == 100);
    ck_assert(d[1].entries[0].value.n == 0);
    ck_assert(d[2].has_hits && d[2].hits == 0);
    reset();
}
END_TEST

static void expect_refusal(const char *expected)
{
    struct rate_limit_call call;
    const char *why = read_request(&call);

    ck_assert_msg(why && strstr(why, expected), "%s, not %s", why ? why : "read", expected);
    reset();
}

static void put_request(struct slice domain, unsigned descriptors, unsigned entries,
                        struct slice key, struct slice value)
{
    begin(&request);
    put_bytes(&request.text, 1, domain);
    begin(&descriptor);
    for (unsigned i = 0; i < entries; i++)
        put_entry(key, value);
    for (unsigned i = 0; i < descriptors; i++)
        put_message(&request.text, 2, &descriptor);
}

START_TEST(calls_are_within_their_bounds)
{
    struct rate_limit_call call;

    put_request(SLICE(""), 1, 1, SLICE("k"), SLICE("v"));
    expect_refusal("domain is empty");
    put_request(SLICE("\xff"), 1, 1, SLICE("k"), SLICE("v"));
    expect_refusal("UTF-8");
    put_request(SLICE("e"), 0, 1, SLICE("k"), SLICE("v"));
    expect_refusal("no descriptors");
    put_request(SLICE("e"), 1, 0, SLICE("k"), SLICE("v"));
    expect_refusal("without entries");
    put_request(SLICE("e"), 1, 1, SLICE(""), SLICE("v"));
    expect_refusal("without a key");
    put_request(SLICE("e"), 1, 1, SLICE("k\xc3"), SLICE("v"));
    expect_refusal("UTF-8");
    put_request(SLICE("e"), 1, 1, SLICE("k"), SLICE("\xed\xa0\x80"));
    expect_refusal("UTF-8");
    put_request(SLICE("e"), DESCRIPTORS_MAX + 1, 1, SLICE("k"), SLICE("v"));
    expect_refusal("64 descriptors");
    put_request(SLICE("e"), 1, DESCRIPTOR_ENTRIES_MAX + 1, SLICE("k"), SLICE("v"));
    expect_refusal("32 entries");
    put_request(SLICE("e"), DESCRIPTORS_MAX, DESCRIPTOR_ENTRIES_MAX, SLICE("key"), SLICE("value"));
    ck_assert_ptr_null(read_request(&call));
    ck_assert(call.count == DESCRIPTORS_MAX);
    reset();
}
END_TEST

START_TEST(an_override_needs_a_known_unit)
{
    for (unsigned unit = 0; unit <= UNIT_COUNT; unit++) {
        struct rate_limit_call call;
        put_request(SLICE("e"), 0, 1, SLICE("k"), SLICE("v"));
        put_number(begin(&inner), 2, unit);
        put_message(&descriptor.text, 2, &inner);
        put_message(&request.text, 2, &descriptor);
        const char *why = read_request(&call);
        ck_assert((why == NULL) == (unit > UNIT_UNKNOWN && unit < UNIT_COUNT));
        reset();
    }
}
END_TEST

/* Every message that is cut is malformed, or another message; none is read past its end. */
START_TEST(cut_messages_are_refused)
{
    struct rate_limit_call call;

    put_request(SLICE("edge"), 2, 3, SLICE("key"), SLICE("value"));
    struct slice whole = text_slice(&request.text);
    for (size_t n = 0; n < whole.n; n++) {
        char *copy = malloc(n + 1);
        memcpy(copy, whole.p, n);
        const char *why = call_read_protobuf(&memory, (struct slice){copy, n}, &call);
        ck_assert(why || call.count == 1);
        free(copy);
        reset();
    }
}
END_TEST

/* 64 KiB of empty entries would need 2 MB. */
START_TEST(memory_of_a_call_is_bounded)
{
    begin(&request);
    put_bytes(&request.text, 1, SLICE("e"));
    begin(&descriptor);
    for (unsigned i = 0; i < 32000; i++)
        put_bytes(&descriptor.text, 1, SLICE(""));
    put_message(&request.text, 2, &descriptor);
    struct rate_limit_call call;
    ck_assert_ptr_nonnull(read_request(&call));
    ck_assert(memory.total <= CALL_MEMORY_MAX && memory.total > CALL_MEMORY_MAX / 2);
    call_memory_reset(&memory);
    ck_assert(memory.total < CALL_MEMORY_MAX / 16);
    put_request(SLICE("e"), 1, 1, SLICE("k"), SLICE("v"));
    ck_assert_ptr_null(read_request(&call));
    reset();
}
END_TEST

/* ---- the frame ------------------------------------------------------------------------------- */

START_TEST(content_is_exactly_one_message)
{
    struct slice message;

    ck_assert(grpc_message_read(SLICE("\0\0\0\0\3abc"), &message) == GRPC_MESSAGE_READ);
    ck_assert(is(message, "abc"));
    ck_assert(grpc_message_read(SLICE("\0\0\0\0\0"), &message) == GRPC_MESSAGE_READ);
    ck_assert(grpc_message_read(SLICE("\1\0\0\0\3abc"), &message) == GRPC_MESSAGE_COMPRESSED);
    ck_assert(grpc_message_read(SLICE(""), &message) == GRPC_MESSAGE_BAD);
    ck_assert(grpc_message_read(SLICE("\0\0\0\0"), &message) == GRPC_MESSAGE_BAD);
    ck_assert(grpc_message_read(SLICE("\0\0\0\0\4abc"), &message) == GRPC_MESSAGE_BAD);
    ck_assert(grpc_message_read(SLICE("\0\0\0\0\1a\0\0\0\0\1a"), &message) == GRPC_MESSAGE_BAD);
    ck_assert(grpc_message_read(SLICE("\2\0\0\0\3abc"), &message) == GRPC_MESSAGE_BAD);
    ck_assert(grpc_message_read(SLICE("\0\xff\xff\xff\xff"), &message) == GRPC_MESSAGE_BAD);
    char prefix[GRPC_PREFIX];
    grpc_message_prefix(prefix, 0x01020304);
    ck_assert(memcmp(prefix, "\0\1\2\3\4", GRPC_PREFIX) == 0);
}
END_TEST

/* ---- JSON ------------------------------------------------------------------------------------ */

static const char *read_json(const char *text, struct rate_limit_call *call)
{
    return call_read_json(&memory, slice_of(text), call);
}

START_TEST(json_has_both_forms_of_names_and_numbers)
{
    static const char *const texts[] = {
        "{\"domain\":\"edge\",\"hitsAddend\":3,\"descriptors\":[{\"entries\":[{\"key\":\"k\","
        "\"value\":\"v\"}],\"limit\":{\"requestsPerUnit\":5,\"unit\":\"HOUR\"},"
        "\"hitsAddend\":\"9\",\"isNegativeHits\":true}]}",
        "{\"domain\":\"edge\",\"hits_addend\":\"3\",\"descriptors\":[{\"entries\":[{\"key\":\"k\","
        "\"value\":\"v\"}],\"limit\":{\"requests_per_unit\":\"5\",\"unit\":3},"
        "\"hits_addend\":9,\"is_negative_hits\":true}]}",
        "{\"domain\":\"edge\",\"hitsAddend\":\"3e0\",\"descriptors\":[{\"entries\":[{\"key\":\"k\","
        "\"value\":\"v\"}],\"limit\":{\"requestsPerUnit\":5.0,\"unit\":\"HOUR\"},"
        "\"hitsAddend\":0.9e1,\"isNegativeHits\":true}]}"};

    for (unsigned i = 0; i < COUNT_OF(texts); i++) {
        struct rate_limit_call call;
        const char *why = read_json(texts[i], &call);
        ck_assert_msg(!why, "%u: %s", i, why);
        const struct call_descriptor *d = &call.descriptors[0];
        ck_assert(is(call.domain, "edge") && call.hits == 3 && call.count == 1);
        ck_assert(d->entry_count == 1 && is(d->entries[0].key, "k") &&
                  is(d->entries[0].value, "v"));
        ck_assert(d->has_limit && d->per_unit == 5 && d->unit == UNIT_HOUR);
        ck_assert(d->has_hits && d->hits == 9 && d->refunds);
        reset();
    }
}
END_TEST

START_TEST(null_is_absent)
{
    struct rate_limit_call call;

    ck_assert_ptr_null(read_json("{\"domain\":\"e\",\"hitsAddend\":null,\"descriptors\":[{"
                                 "\"entries\":[{\"key\":\"k\",\"value\":null}],\"limit\":null,"
                                 "\"hitsAddend\":null,\"isNegativeHits\":null}]}",
                                 &call));
    const struct call_descriptor *d = &call.descriptors[0];
    ck_assert(call.hits == 0 && !d->has_hits && !d->has_limit && !d->refunds);
    ck_assert(d->entries[0].value.n == 0);
    ck_assert_ptr_null(read_json("{\"domain\":\"e\",\"descriptors\":[{\"hitsAddend\":0,"
                                 "\"entries\":[{\"key\":\"k\",\"value\":\"a\\u0000b\"}]}]}",
                                 &call));
    ck_assert(call.descriptors[0].has_hits && call.descriptors[0].hits == 0);
    ck_assert(call.descriptors[0].entries[0].value.n == 3);
    reset();
}
END_TEST

#define ENTRIES "\"entries\":[{\"key\":\"k\"}]"

START_TEST(malformed_json_is_refused)
{
    static const struct {
        const char *text, *why;
    } cases[] = {
        {"", "valid JSON"},
        {"{", "valid JSON"},
        {"[]", "wrong type"},
        {"{\"domain\":\"e\",\"domain\":\"e\"}", "valid JSON"},
        {"{\"domain\":\"\xff\"}", "valid JSON"},
        {"{\"Domain\":\"e\"}", "unknown name"},
        {"{\"domain\":1}", "wrong type"},
        {"{\"domain\":\"e\",\"hitsAddend\":1,\"hits_addend\":1}", "twice"},
        {"{\"domain\":\"e\",\"hitsAddend\":-1}", "range"},
        {"{\"domain\":\"e\",\"hitsAddend\":4294967296}", "range"},
        {"{\"domain\":\"e\",\"hitsAddend\":1.5}", "range"},
        {"{\"domain\":\"e\",\"hitsAddend\":\" 1\"}", "wrong type"},
        {"{\"domain\":\"e\",\"hitsAddend\":\"x\"}", "wrong type"},
        {"{\"domain\":\"e\",\"hitsAddend\":true}", "wrong type"},
        {"{\"domain\":\"e\"}", "no descriptors"},
        {"{\"domain\":\"e\",\"descriptors\":{}}", "wrong type"},
        {"{\"domain\":\"e\",\"descriptors\":[null]}", "wrong type"},
        {"{\"domain\":\"e\",\"descriptors\":[{}]}", "without entries"},
        {"{\"descriptors\":[{" ENTRIES "}]}", "domain is empty"},
        {"{\"domain\":\"e\",\"descriptors\":[{\"entries\":[{\"value\":\"v\"}]}]}", "without a key"},
        {"{\"domain\":\"e\",\"descriptors\":[{" ENTRIES ",\"x\":1}]}", "unknown name"},
        {"{\"domain\":\"e\",\"descriptors\":[{" ENTRIES ",\"limit\":{}}]}", "unknown unit"},
        {"{\"domain\":\"e\",\"descriptors\":[{" ENTRIES ",\"limit\":{\"unit\":\"hour\"}}]}",
         "unknown name of a unit"},
        {"{\"domain\":\"e\",\"descriptors\":[{" ENTRIES ",\"limit\":{\"unit\":8}}]}",
         "unknown unit"},
        {"{\"domain\":\"e\",\"descriptors\":[{" ENTRIES ",\"isNegativeHits\":1}]}", "wrong type"}};

    for (unsigned i = 0; i < COUNT_OF(cases); i++) {
        struct rate_limit_call call;
        const char *why = read_json(cases[i].text, &call);
        ck_assert_msg(why && strstr(why, cases[i].why), "%s: %s", cases[i].text, why);
        reset();
    }
}
END_TEST

/* ---- responses ------------------------------------------------------------------------------- */

#define TEXT(literal) .kind = METADATA_TEXT, .text = {literal, sizeof literal - 1}
#define KEY(literal)  .key = {literal, sizeof literal - 1}
#define ITEMS(array)  .count = COUNT_OF(array), .items = array

static const struct metadata in_first[] = {{KEY("tier"), TEXT("gold")},
                                           {KEY("n"), .kind = METADATA_NUMBER, .number = 1.5},
                                           {KEY("on"), .kind = METADATA_BOOL, .is_true = true}};
static const struct metadata in_map[] = {{KEY("a"), .kind = METADATA_LIST}};
static const struct metadata in_list[] = {{.kind = METADATA_NULL},
                                          {.kind = METADATA_MAP, ITEMS(in_map)}};
static const struct metadata in_second[] = {{KEY("tier"), TEXT("basic")},
                                            {KEY("list"), .kind = METADATA_LIST, ITEMS(in_list)}};
static const struct metadata first = {.kind = METADATA_MAP, ITEMS(in_first)},
                             second = {.kind = METADATA_MAP, ITEMS(in_second)};
static const struct metadata *const maps[] = {&first, &second};

static const struct descriptor_result results[] = {{.has_limit = true,
                                                    .name = {"per-address", 11},
                                                    .per_unit = 10,
                                                    .unit = UNIT_MINUTE,
                                                    .remaining = 9,
                                                    .reset_us = 6000000},
                                                   {.over = true,
                                                    .has_limit = true,
                                                    .name = {"\"x\"", 3},
                                                    .per_unit = 0,
                                                    .unit = UNIT_UNKNOWN,
                                                    .reset_us = 1500000},
                                                   {.remaining = UINT32_MAX, .reset_us = -1}};

static const struct call_response response = {.over = true,
                                              .count = COUNT_OF(results),
                                              .results = results,
                                              .header_lines = {"X-A: 1\r\nRetry-After: 2\r\n", 24},
                                              .body = {"no\n", 3},
                                              .metadata = maps,
                                              .metadata_count = 2};

START_TEST(responses_as_json)
{
    static const char expected[] =
        "{\"overallCode\":\"OVER_LIMIT\",\"statuses\":["
        "{\"code\":\"OK\",\"currentLimit\":{\"requestsPerUnit\":10,\"unit\":\"MINUTE\","
        "\"name\":\"per-address\"},\"limitRemaining\":9,\"durationUntilReset\":\"6s\"},"
        "{\"code\":\"OVER_LIMIT\",\"currentLimit\":{\"name\":\"\\\"x\\\"\"},"
        "\"durationUntilReset\":\"1.500s\"},"
        "{\"code\":\"OK\",\"limitRemaining\":4294967295}],"
        "\"responseHeadersToAdd\":[{\"key\":\"X-A\",\"value\":\"1\"},"
        "{\"key\":\"Retry-After\",\"value\":\"2\"}],\"rawBody\":\"bm8K\","
        "\"dynamicMetadata\":{\"n\":1.5,\"on\":true,\"tier\":\"basic\",\"list\":[null,{\"a\":[]}]}"
        "}";
    struct text out;

    ck_assert(call_response_write_json(&response, &out));
    ck_assert(slice_equal(text_slice(&out), SLICE(expected)));
    free(out.p);
}
END_TEST

/* The bytes are those that Python's protobuf library writes for the same message. */
START_TEST(responses_as_protobuf)
{
    static const char expected[] =
        "\010\002\022\033\010\001\022\021\010\012\020\002\032\013per-"
        "address\030\011\042\002\010\006"
        "\022\023\010\002\022\005\032\003\042x\042\042\010\010\001\020\200\312\265\356\001"
        "\022\010\010\001\030\377\377\377\377\017"
        "\032\010\012\003X-A\022\0011\032\020\012\013Retry-After\022\0012"
        "\052\003no\012"
        "\062\110\012\016\012\001n\022\011\021\000\000\000\000\000\000\370\077"
        "\012\010\012\002on\022\002\040\001"
        "\012\017\012\004tier\022\007\032\005basic"
        "\012\033\012\004list\022\023\062\021\012\002\010\000\012\013\052\011\012\007\012\001a\022"
        "\002\062\000";
    char bytes[400];
    struct text out = text_over(bytes, sizeof bytes);

    ck_assert(call_response_write_protobuf(&memory, &response, &out));
    ck_assert_mem_eq(bytes, expected, out.n);
    ck_assert_uint_eq(out.n, sizeof expected - 1);
    out = text_over(bytes, sizeof expected - 2);
    ck_assert(!call_response_write_protobuf(&memory, &response, &out));
    reset();
}
END_TEST

START_TEST(long_names_are_cut_between_characters)
{
    char bytes[CALL_NAME_MAX + 2];

    memset(bytes, 'a', sizeof bytes);
    ck_assert_uint_eq(call_name_sent((struct slice){bytes, CALL_NAME_MAX}).n, CALL_NAME_MAX);
    ck_assert_uint_eq(call_name_sent((struct slice){bytes, CALL_NAME_MAX + 2}).n, CALL_NAME_MAX);
    memcpy(bytes + CALL_NAME_MAX - 1, "\xc3\xa9", 2);
    ck_assert_uint_eq(call_name_sent((struct slice){bytes, CALL_NAME_MAX + 2}).n,
                      CALL_NAME_MAX - 1);
}
END_TEST

START_TEST(health_messages)
{
    struct slice service;
    char bytes[8];
    struct text out = text_over(bytes, sizeof bytes);

    ck_assert(health_request_read(&memory, SLICE(""), &service) && service.n == 0);
    ck_assert(health_request_read(&memory, SLICE("\x0a\x09ratelimit"), &service));
    ck_assert(is(service, "ratelimit"));
    ck_assert(!health_request_read(&memory, SLICE("\x0a\x0aratelimit"), &service));
    ck_assert(health_response_write(HEALTH_NOT_SERVING, &out));
    ck_assert(slice_equal(text_slice(&out), SLICE("\x08\x02")));
    reset();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("service");
    TCase *protobuf = tcase_create("protobuf"), *json = tcase_create("json"),
          *responses = tcase_create("responses");

    tcase_add_test(protobuf, a_call_has_all_its_fields);
    tcase_add_test(protobuf, calls_are_within_their_bounds);
    tcase_add_test(protobuf, an_override_needs_a_known_unit);
    tcase_add_test(protobuf, cut_messages_are_refused);
    tcase_add_test(protobuf, memory_of_a_call_is_bounded);
    tcase_add_test(protobuf, health_messages);
    tcase_add_test(protobuf, responses_as_protobuf);
    tcase_add_test(responses, content_is_exactly_one_message);
    tcase_add_test(json, json_has_both_forms_of_names_and_numbers);
    tcase_add_test(json, null_is_absent);
    tcase_add_test(json, malformed_json_is_refused);
    tcase_add_test(responses, responses_as_json);
    tcase_add_test(responses, long_names_are_cut_between_characters);
    if (service_has_protobuf())
        suite_add_tcase(suite, protobuf);
    suite_add_tcase(suite, json);
    suite_add_tcase(suite, responses);
    return run_suite(suite);
}
