#include "base/json_read.h"

const json_t *json_at(const json_t *node, const char *path)
{
    while (node && *path) {
        size_t n = strcspn(path, ".");
        char name[64];
        if (n >= sizeof name)
            return NULL;
        memcpy(name, path, n);
        name[n] = 0;
        node = json_object_get(node, name);
        path += n + (path[n] == '.');
    }
    return node;
}

double json_double(const json_t *node, double otherwise)
{
    return json_is_number(node) ? json_number_value(node) : otherwise;
}

struct slice json_text(const json_t *node)
{
    return json_is_string(node) ? (struct slice){json_string_value(node), json_string_length(node)}
                                : SLICE("");
}
