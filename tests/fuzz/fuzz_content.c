/* The first byte chooses the format and whether the input is one document or a stream of events.
 * Properties: no read past the end of a piece; the result and the sums are the same for every
 * division into pieces; a valid document without its last byte is not complete, unless that byte is
 * white space or a digit; sums are in their range. */
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct usage usage;
    struct json_paths paths = {0};

    if (!size)
        return 0;
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
