#include "policy/address_lists.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

/* A range as numbers; IPv4 uses the low 32 bits only. */
struct span {
    uint64_t high, low;
    uint64_t last_high, last_low;
    enum listed as;
};

enum { DEPTH_MAX = 129 + 1 }; /* nested ranges of one address, plus one */

/* A table under construction, with the stack of ranges that contain the current address. */
struct sweep {
    struct listed_from *out;
    unsigned count;
    struct span open[DEPTH_MAX];
    unsigned depth;
};

static uint64_t number_of_bytes(const unsigned char *bytes)
{
    uint64_t number;
    memcpy(&number, bytes, sizeof number);
    return be64toh(number);
}

/* Mask of the bits after the first `bits` of 64. */
static uint64_t ones_after(unsigned bits)
{
    return bits >= 64 ? 0 : UINT64_MAX >> bits;
}

static bool is_v4(const struct listed_range *range)
{
    return range->range.bits >= 96 && ip_is_v4(&range->range.ip);
}

static struct span span_of(const struct listed_range *range)
{
    unsigned bits = range->range.bits;
    struct span span = {number_of_bytes(range->range.ip.bytes),
                        number_of_bytes(range->range.ip.bytes + 8), 0, 0, range->as};

    if (is_v4(range)) {
        span.high = 0;
        span.low &= UINT32_MAX;
    }
    span.last_high = span.high | (is_v4(range) ? 0 : ones_after(bits));
    span.last_low = span.low | (bits > 64 ? ones_after(bits - 64) : UINT64_MAX);
    return span;
}

/* Orders IPv4 before IPv6, then by first address, wider before narrower, blocked before allowed. */
static int in_order(const void *a, const void *b)
{
    const struct listed_range *left = a, *right = b;

    if (is_v4(left) != is_v4(right))
        return is_v4(left) ? -1 : 1;
    int order = memcmp(left->range.ip.bytes, right->range.ip.bytes, sizeof left->range.ip.bytes);
    if (order)
        return order;
    if (left->range.bits != right->range.bits)
        return left->range.bits < right->range.bits ? -1 : 1;
    return (left->as != LISTED_BLOCKED) - (right->as != LISTED_BLOCKED);
}

/* Starts an interval at this address. */
static void begin_interval(struct sweep *sweep, uint64_t high, uint64_t low, enum listed as)
{
    struct listed_from *last = sweep->count ? &sweep->out[sweep->count - 1] : NULL;

    if (last && last->high == high && last->low == low) {
        last->as = as;
        return;
    }
    if ((last ? last->as : LISTED_NOT) != as)
        sweep->out[sweep->count++] = (struct listed_from){high, low, as};
}

/* Closes the innermost range: the enclosing range continues, unless no address is left. */
static void close_last(struct sweep *sweep)
{
    const struct span *span = &sweep->open[--sweep->depth];
    enum listed around = sweep->depth ? sweep->open[sweep->depth - 1].as : LISTED_NOT;
    uint64_t low = span->last_low + 1, high = span->last_high + (low == 0);

    if (low || high)
        begin_interval(sweep, high, low, around);
}

static bool ends_before(const struct span *a, const struct span *b)
{
    return a->last_high < b->high || (a->last_high == b->high && a->last_low < b->low);
}

static void sweep_all(struct sweep *sweep, const struct listed_range *ranges, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (i && in_order(&ranges[i - 1], &ranges[i]) <= 0 &&
            ranges[i - 1].range.bits == ranges[i].range.bits &&
            memcmp(&ranges[i - 1].range.ip, &ranges[i].range.ip, sizeof ranges[i].range.ip) == 0)
            continue; /* duplicate range: the first wins */
        struct span span = span_of(&ranges[i]);
        while (sweep->depth && ends_before(&sweep->open[sweep->depth - 1], &span))
            close_last(sweep);
        begin_interval(sweep, span.high, span.low, span.as);
        sweep->open[sweep->depth++] = span;
    }
    while (sweep->depth)
        close_last(sweep);
}

/* Each range adds at most two intervals. */
static bool make_one(const struct listed_range *ranges, size_t count, struct listed_from **from,
                     unsigned *marks)
{
    struct sweep sweep = {.out = malloc((2 * count + 1) * sizeof *sweep.out)};

    if (!sweep.out)
        return false;
    sweep_all(&sweep, ranges, count);
    *from = realloc(sweep.out, (sweep.count + 1) * sizeof *sweep.out);
    if (!*from)
        *from = sweep.out; /* keep the larger allocation */
    *marks = sweep.count;
    return true;
}

bool address_table_make(struct address_table *table, struct listed_range *ranges, size_t count)
{
    size_t v4 = 0;

    *table = (struct address_table){0};
    if (count)
        qsort(ranges, count, sizeof *ranges, in_order);
    while (v4 < count && is_v4(&ranges[v4]))
        v4++;
    if (make_one(ranges, v4, &table->v4, &table->v4_count) &&
        make_one(ranges + v4, count - v4, &table->v6, &table->v6_count))
        return true;
    address_table_clear(table);
    return false;
}

void address_table_clear(struct address_table *table)
{
    free(table->v4);
    free(table->v6);
    *table = (struct address_table){0};
}

enum listed address_table_find(const struct address_table *table, const struct ip *ip)
{
    bool v4 = ip_is_v4(ip);
    const struct listed_from *all = v4 ? table->v4 : table->v6;
    unsigned low = 0,
             /* the first interval after the address is in [low, high] */
        high = v4 ? table->v4_count : table->v6_count;
    uint64_t key_high = v4 ? 0 : number_of_bytes(ip->bytes),
             key_low = number_of_bytes(ip->bytes + 8);

    if (high == 0)
        return LISTED_NOT;
    if (v4)
        key_low &= UINT32_MAX;
    while (low < high) {
        unsigned middle = low + (high - low) / 2;
        if (all[middle].high < key_high ||
            (all[middle].high == key_high && all[middle].low <= key_low))
            low = middle + 1;
        else
            high = middle;
    }
    return low ? all[low - 1].as : LISTED_NOT;
}
