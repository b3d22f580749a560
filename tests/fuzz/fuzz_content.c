/* The first byte chooses the format and whether the input is one document or a stream of events.
 * Properties: no read past the end of a piece; the result and the sums are the same for every
 * division into pieces; a valid document without its last byte is not complete, unless that byte is
 * white space or a digit; sums are in their range. A request that is asked for its usage stays valid
 * JSON, and is asked once; what is removed from a stream does not depend on the division into pieces,
 * and the rest is in order. */
#include <jansson.h>

#include "content/stream_usage.h"
#include "content/usage_reader.h"
#include "fuzz.h"

static const struct usage_weights weights = {1000, 5000, 100, 1250};

static struct usage_reader *read_all(const struct usage *usage, const struct json_paths *paths,
                                     enum usage_type type, const uint8_t *data, size_t size,
                                     uint32_t choice)
{
    struct usage_reader *reader = malloc(usage_reader_size(paths));

    PROPERTY(reader != NULL);
    usage_reader_begin(reader, paths, type, usage->objects_in_array);
    while (size) {
        size_t n = choice ? 1 + choice % 13 : size;
        n = n < size ? n : size;
        char *piece = fuzz_copy(data, n);
        usage_reader_read(reader, (struct slice){piece, n});
        free(piece);
        data += n;
        size -= n;
        choice = choice * 1664525u + (choice != 0) * 1013904223u;
    }
    return reader;
}

/* The member is inserted into a valid object, which is not asked again. */
static void ask(const uint8_t *data, size_t size)
{
    char *content = fuzz_copy(data, size);
    struct slice member = STREAM_USAGE_MEMBER;
    size_t place, again;

    if (stream_usage_of((struct slice){content, size}, &place) == STREAM_USAGE_UNASKED) {
        char *asked = malloc(size + member.n);
        memcpy(asked, content, place);
        memcpy(asked + place, member.p, member.n);
        memcpy(asked + place + member.n, content + place, size - place);
        json_t *before = json_loadb(content, size, JSON_ALLOW_NUL, NULL),
               *after = json_loadb(asked, size + member.n, JSON_ALLOW_NUL, NULL);
        PROPERTY(after || !before); /* jansson does not hold all numbers */
        PROPERTY(stream_usage_of((struct slice){asked, size + member.n}, &again) ==
                 STREAM_USAGE_STATED);
        json_decref(before);
        json_decref(after);
        free(asked);
    }
    free(content);
}

/* Returns the bytes that are left of a stream, in memory of the caller. */
static char *filter(const uint8_t *data, size_t size, uint32_t choice, size_t *left)
{
    struct stream_usage_filter *made = malloc(sizeof *made);
    char *bytes = malloc(size + 1);
    struct text out = text_over(bytes, size + 1);

    stream_usage_filter_begin(made);
    for (size_t at = 0, n; at < size; at += n) {
        n = choice ? 1 + choice % 13 : size;
        n = n < size - at ? n : size - at;
        char *piece = fuzz_copy(data + at, n);
        stream_usage_filter_read(made, (struct slice){piece, n}, at + n == size, &out);
        free(piece);
        choice = choice * 1664525u + (choice != 0) * 1013904223u;
    }
    PROPERTY(!out.failed);
    *left = out.n;
    free(made);
    return bytes;
}

/* All of the text, in order, is in the whole. */
static bool is_part(const char *text, size_t size, const uint8_t *whole, size_t all)
{
    size_t at = 0;

    for (size_t i = 0; i < all && at < size; i++)
        at += text[at] == (char)whole[i];
    return at == size;
}

static void remove_usage(const uint8_t *data, size_t size)
{
    size_t left, left_of_cut;
    char *whole = filter(data, size, 0, &left),
         *cut = filter(data, size, fuzz_choice(data, size) | 1, &left_of_cut);

    PROPERTY(left == left_of_cut && memcmp(whole, cut, left) == 0);
    PROPERTY(is_part(whole, left, data, size));
    free(whole);
    free(cut);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct usage usage;
    struct json_paths paths = {0};

    if (!size)
        return 0;
    ask(data + 1, size - 1);
    remove_usage(data + 1, size - 1);
    usage_of_format(&usage, data[0] % 3, data[0] & 64 ? &weights : NULL);
    for (unsigned i = 0; i < usage.part_count; i++)
        PROPERTY(json_paths_add(&paths, &usage.parts[i].path) >= 0);
    enum usage_type type = data[0] & 128 ? USAGE_TYPE_EVENTS : USAGE_TYPE_JSON;
    struct usage_reader *whole = read_all(&usage, &paths, type, data + 1, size - 1, 0);
    struct usage_reader *cut =
        read_all(&usage, &paths, type, data + 1, size - 1, fuzz_choice(data, size) | 1);

    PROPERTY(usage_reader_sum(whole, &usage) == usage_reader_sum(cut, &usage));
    enum usage_result result = usage_reader_end(whole, true);
    PROPERTY(result == usage_reader_end(cut, true));
    int64_t sum = usage_reader_sum(whole, &usage);
    PROPERTY(sum == usage_reader_sum(cut, &usage));
    PROPERTY(sum >= -1 && sum <= JSON_INTEGER_MAX);
    PROPERTY(result != USAGE_MISSING || sum == -1);
    if (type == USAGE_TYPE_JSON && result <= USAGE_MISSING && strchr("}]\"el", data[size - 1])) {
        struct usage_reader *shorter = read_all(&usage, &paths, type, data + 1, size - 2, 0);
        PROPERTY(usage_reader_end(shorter, true) == USAGE_INVALID);
        free(shorter);
    }
    free(whole);
    free(cut);
    return 0;
}
