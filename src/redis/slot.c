#include "redis/slot.h"

#include <string.h>

#include "redis/sentinel.h"

/* CRC-16/XMODEM, bytewise without a table: polynomial x^16 + x^12 + x^5 + 1 (appendix of the
 * Redis Cluster specification). */
static unsigned crc16(struct slice s)
{
    unsigned crc = 0;

    for (size_t i = 0; i < s.n; i++) {
        unsigned x = (crc >> 8 ^ (unsigned char)s.p[i]) & 0xff;
        x ^= x >> 4;
        crc = (crc << 8 ^ x << 12 ^ x << 5 ^ x) & 0xffff;
    }
    return crc;
}

unsigned redis_slot_of(struct slice key)
{
    const char *open = key.n ? memchr(key.p, '{', key.n) : NULL;
    const char *close = open ? memchr(open, '}', key.n - (size_t)(open - key.p)) : NULL;

    if (close && close > open + 1)
        key = (struct slice){open + 1, (size_t)(close - open) - 1};
    return crc16(key) % REDIS_SLOTS;
}

bool redis_node_read(struct slice host, struct slice port, const struct address *answered,
                     struct address *address)
{
    uint64_t number;

    if (host.n && !slice_equal(host, SLICE("?")))
        return redis_sentinel_address(host, port, address);
    if (!slice_to_u64(port, UINT16_MAX, &number) || number == 0 || answered->length == 0 ||
        address_is_unix(answered))
        return false;
    *address = *answered;
    /* the port is at the same offset in IPv6 addresses */
    address->v4.sin_port = htons((uint16_t)number);
    return true;
}

bool redis_redirect_read(const char *error, const struct address *answered, bool *asking,
                         unsigned *slot, struct address *address)
{
    uint64_t number;

    *asking = strncmp(error, "ASK ", 4) == 0;
    if (!*asking && strncmp(error, "MOVED ", 6) != 0)
        return false;
    const char *rest = error + (*asking ? 4 : 6), *blank = strchr(rest, ' '),
               *colon = strrchr(rest, ':');
    if (!blank || !colon || colon < blank ||
        !slice_to_u64((struct slice){rest, (size_t)(blank - rest)}, REDIS_SLOTS - 1, &number))
        return false;
    *slot = (unsigned)number;
    return redis_node_read((struct slice){blank + 1, (size_t)(colon - blank) - 1},
                           slice_of(colon + 1), answered, address);
}
