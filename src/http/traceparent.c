#include "http/traceparent.h"

enum { ID_AT = 3, ID_SIZE = 32, PARENT_AT = 36, PARENT_SIZE = 16, FLAGS_AT = 53, SIZE = 55 };

static bool is_hex(struct slice value, size_t from, size_t n)
{
    for (size_t i = from; i < from + n; i++)
        if (!((value.p[i] >= '0' && value.p[i] <= '9') || (value.p[i] >= 'a' && value.p[i] <= 'f')))
            return false;
    return true;
}

static bool is_zero(struct slice value, size_t from, size_t n)
{
    for (size_t i = from; i < from + n; i++)
        if (value.p[i] != '0')
            return false;
    return true;
}

/* Version ff is invalid; version 00 has exactly these four parts. */
static bool has_parts(struct slice value)
{
    if (value.n < SIZE || value.p[ID_AT - 1] != '-' || value.p[PARENT_AT - 1] != '-' ||
        value.p[FLAGS_AT - 1] != '-')
        return false;
    if (value.n > SIZE && (is_zero(value, 0, 2) || value.p[SIZE] != '-'))
        return false;
    return is_hex(value, 0, 2) && !(value.p[0] == 'f' && value.p[1] == 'f') &&
           is_hex(value, FLAGS_AT, 2);
}

struct slice traceparent_id(struct slice value)
{
    if (!has_parts(value) || !is_hex(value, ID_AT, ID_SIZE) || is_zero(value, ID_AT, ID_SIZE) ||
        !is_hex(value, PARENT_AT, PARENT_SIZE) || is_zero(value, PARENT_AT, PARENT_SIZE))
        return SLICE_NONE;
    return (struct slice){value.p + ID_AT, ID_SIZE};
}
