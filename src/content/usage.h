/* usage.h - which members of a response tell the cost of a request, and how they are summed.
 *
 * A usage consists of counts, such as input and output tokens. Several paths may name the same
 * count, as APIs have several forms of responses: the value that comes last is the count. */
#ifndef WEIR_CONTENT_USAGE_H
#define WEIR_CONTENT_USAGE_H

#include "content/json_path.h"

enum usage_format { USAGE_OPENAI, USAGE_ANTHROPIC, USAGE_GEMINI };

enum {
    USAGE_PATHS_MAX = 16,
    USAGE_WEIGHT_ONE = 1000, /* weights are in thousandths */
    USAGE_WEIGHT_MAX = 1000000 * USAGE_WEIGHT_ONE
};

/* Weights of the formats, in 1 / USAGE_WEIGHT_ONE. */
struct usage_weights {
    int64_t input, output, cache_read, cache_write;
};

struct usage_part {
    struct json_path path;
    unsigned count; /* the count that the path sets */
    int64_t weight; /* of that count, in 1 / USAGE_WEIGHT_ONE; negative: included in another one */
};

struct usage {
    unsigned part_count;
    struct usage_part parts[USAGE_PATHS_MAX];
    bool objects_in_array; /* of a response that is an array, the elements are read */
};

/* Fills in a format of a well-known API. `weights` NULL: the total that the API states or, without
 * such a total (Anthropic), input plus output. */
void usage_of_format(struct usage *usage, enum usage_format format,
                     const struct usage_weights *weights);

/* Adds a path as a count of its own. False: there are too many. */
bool usage_add(struct usage *usage, const struct json_path *path, int64_t weight);

#endif
