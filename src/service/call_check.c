#include "service/call_check.h"

#include "base/text.h"

const char call_too_many_descriptors[] = "more than 64 descriptors";
const char call_too_many_entries[] = "a descriptor with more than 32 entries";
const char call_too_much_memory[] = "the message is too complex";

static const char not_utf8[] = "a text that is no UTF-8";

static const char *check_descriptor(const struct call_descriptor *descriptor)
{
    if (descriptor->entry_count == 0)
        return "a descriptor without entries";
    for (unsigned i = 0; i < descriptor->entry_count; i++) {
        const struct descriptor_entry *entry = &descriptor->entries[i];
        if (entry->key.n == 0)
            return "an entry without a key";
        if (!text_is_utf8(entry->key) || !text_is_utf8(entry->value))
            return not_utf8;
    }
    if (descriptor->has_limit &&
        (descriptor->unit <= UNIT_UNKNOWN || descriptor->unit >= UNIT_COUNT))
        return "the limit of a descriptor has an unknown unit";
    return NULL;
}

const char *call_check(const struct rate_limit_call *call)
{
    const char *why;

    if (call->domain.n == 0)
        return "the domain is empty";
    if (!text_is_utf8(call->domain))
        return not_utf8;
    if (call->count == 0)
        return "there are no descriptors";
    for (unsigned i = 0; i < call->count; i++)
        if ((why = check_descriptor(&call->descriptors[i])))
            return why;
    return NULL;
}
