#include "content/usage.h"

/* The weight of a count, by what it is of. */
enum weight_of {
    WEIGHT_ONE,
    WEIGHT_INPUT,
    WEIGHT_OUTPUT,
    WEIGHT_CACHE_READ,
    WEIGHT_CACHE_WRITE,
    WEIGHT_CACHED_INPUT /* included in the input: replaces its weight by that of a cache read */
};

struct usage_row {
    const char *path;
    unsigned char count, weight;
};

/* Chat Completions; Responses: as one document, and in the events of a stream. */
static const struct usage_row openai_total[] = {
    {"usage.total_tokens", 0, WEIGHT_ONE}, {"response.usage.total_tokens", 0, WEIGHT_ONE}, {0}};

static const struct usage_row openai_weighted[] = {
    {"usage.prompt_tokens", 0, WEIGHT_INPUT},
    {"usage.input_tokens", 0, WEIGHT_INPUT},
    {"response.usage.input_tokens", 0, WEIGHT_INPUT},
    {"usage.completion_tokens", 1, WEIGHT_OUTPUT},
    {"usage.output_tokens", 1, WEIGHT_OUTPUT},
    {"response.usage.output_tokens", 1, WEIGHT_OUTPUT},
    {"usage.prompt_tokens_details.cached_tokens", 2, WEIGHT_CACHED_INPUT},
    {"usage.input_tokens_details.cached_tokens", 2, WEIGHT_CACHED_INPUT},
    {"response.usage.input_tokens_details.cached_tokens", 2, WEIGHT_CACHED_INPUT},
    {0}};

/* `message` is in the event message_start. */
static const struct usage_row anthropic[] = {
    {"usage.input_tokens", 0, WEIGHT_INPUT},
    {"message.usage.input_tokens", 0, WEIGHT_INPUT},
    {"usage.output_tokens", 1, WEIGHT_OUTPUT},
    {"message.usage.output_tokens", 1, WEIGHT_OUTPUT},
    {"usage.cache_read_input_tokens", 2, WEIGHT_CACHE_READ},
    {"message.usage.cache_read_input_tokens", 2, WEIGHT_CACHE_READ},
    {"usage.cache_creation_input_tokens", 3, WEIGHT_CACHE_WRITE},
    {"message.usage.cache_creation_input_tokens", 3, WEIGHT_CACHE_WRITE},
    {0}};

static const struct usage_row gemini_total[] = {{"usageMetadata.totalTokenCount", 0, WEIGHT_ONE},
                                                {0}};

static const struct usage_row gemini_weighted[] = {
    {"usageMetadata.promptTokenCount", 0, WEIGHT_INPUT},
    {"usageMetadata.candidatesTokenCount", 1, WEIGHT_OUTPUT},
    {"usageMetadata.thoughtsTokenCount", 2, WEIGHT_OUTPUT},
    {"usageMetadata.cachedContentTokenCount", 3, WEIGHT_CACHED_INPUT},
    {"usageMetadata.toolUsePromptTokenCount", 4, WEIGHT_INPUT},
    {0}};

static int64_t weight_of(const struct usage_weights *weights, unsigned which)
{
    static const struct usage_weights usual = {USAGE_WEIGHT_ONE, USAGE_WEIGHT_ONE, 0, 0};
    const struct usage_weights *w = weights ? weights : &usual;

    switch ((enum weight_of)which) {
    case WEIGHT_INPUT: return w->input;
    case WEIGHT_OUTPUT: return w->output;
    case WEIGHT_CACHE_READ: return w->cache_read;
    case WEIGHT_CACHE_WRITE: return w->cache_write;
    case WEIGHT_CACHED_INPUT: return w->cache_read - w->input;
    case WEIGHT_ONE: break;
    }
    return USAGE_WEIGHT_ONE;
}

void usage_of_format(struct usage *usage, enum usage_format format,
                     const struct usage_weights *weights)
{
    static const struct usage_row *const rows[][2] = {
        [USAGE_OPENAI] = {openai_total, openai_weighted},
        [USAGE_ANTHROPIC] = {anthropic, anthropic},
        [USAGE_GEMINI] = {gemini_total, gemini_weighted}};

    *usage = (struct usage){.objects_in_array = format == USAGE_GEMINI};
    for (const struct usage_row *row = rows[format][weights != NULL]; row->path; row++) {
        struct usage_part *part = &usage->parts[usage->part_count++];
        (void)json_path_parse(slice_of(row->path), &part->path);
        part->count = row->count;
        part->weight = weight_of(weights, row->weight);
    }
}

bool usage_add(struct usage *usage, const struct json_path *path, int64_t weight)
{
    if (usage->part_count == USAGE_PATHS_MAX)
        return false;
    unsigned i = usage->part_count++;
    usage->parts[i] = (struct usage_part){*path, i, weight};
    return true;
}
