#include "net/proxy_header.h"

#include <stddef.h>
#include <string.h>

/* ---- version 1: a line ----------------------------------------------------------------------- */

/* Removes the next word and the space after it from the line. The last word ends at the end of the
 * line. */
static bool next_word(struct slice *line, struct slice *word)
{
    if (line->n == 0)
        return false;
    const char *space = memchr(line->p, ' ', line->n);
    word->p = line->p;
    word->n = space ? (size_t)(space - line->p) : line->n;
    line->p += word->n;
    line->n -= word->n;
    if (space) {
        line->p++;
        line->n--;
    }
    return word->n > 0 && !(space && line->n == 0);
}

/* Parses a decimal port without leading zeros. */
static bool read_port(struct slice word, uint64_t *port)
{
    return !(word.n > 1 && word.p[0] == '0') && slice_to_u64(word, UINT16_MAX, port);
}

static bool read_v1_ip(struct slice word, bool v6, struct ip *ip)
{
    bool colon = memchr(word.p, ':', word.n) != NULL;
    return colon == v6 && ip_parse(word, ip);
}

/* Parses "TCP4 SOURCE DESTINATION SOURCE-PORT DESTINATION-PORT" (or TCP6), or "UNKNOWN" followed by
 * anything. */
static bool read_v1(struct slice line, struct address *source)
{
    struct slice family, word[4];
    struct ip ip[2];
    uint64_t port[2];

    *source = (struct address){.length = 0};
    const char *space = memchr(line.p, ' ', line.n);
    family = (struct slice){line.p, space ? (size_t)(space - line.p) : line.n};
    if (slice_equal(family, SLICE("UNKNOWN")))
        return true;
    bool v6 = slice_equal(family, SLICE("TCP6"));
    if (!space || (!v6 && !slice_equal(family, SLICE("TCP4"))))
        return false;
    line.p += family.n + 1;
    line.n -= family.n + 1;
    for (unsigned i = 0; i < 4; i++)
        if (!next_word(&line, &word[i]))
            return false;
    if (line.n || !read_v1_ip(word[0], v6, &ip[0]) || !read_v1_ip(word[1], v6, &ip[1]) ||
        !read_port(word[2], &port[0]) || !read_port(word[3], &port[1]))
        return false;
    address_of_ip(&ip[0], (uint16_t)port[0], source);
    return true;
}

static enum proxy_header_scan scan_v1(struct slice bytes, struct proxy_header *header)
{
    const struct slice start = SLICE("PROXY ");
    size_t known = bytes.n < start.n ? bytes.n : start.n;

    if (memcmp(bytes.p, start.p, known) != 0)
        return PROXY_HEADER_BAD;
    struct slice looked = {bytes.p, bytes.n < PROXY_HEADER_V1_MAX ? bytes.n : PROXY_HEADER_V1_MAX};
    const char *cr = memchr(looked.p, '\r', looked.n), *lf = memchr(looked.p, '\n', looked.n);
    if (!cr || cr + 1 == looked.p + looked.n)
        return lf || looked.n == PROXY_HEADER_V1_MAX ? PROXY_HEADER_BAD : PROXY_HEADER_PARTIAL;
    header->local = false;
    header->size = (size_t)(cr - looked.p) + 2;
    if (lf != cr + 1 ||
        !read_v1((struct slice){looked.p + start.n, header->size - start.n - 2}, &header->source))
        return PROXY_HEADER_BAD;
    return PROXY_HEADER_WHOLE;
}

/* ---- version 2: binary ----------------------------------------------------------------------- */

enum {
    V2_FIXED = 16, /* signature, version and command, family and transport, remaining length */
    V2_LOCAL = 0x20,
    V2_PROXY = 0x21,
    V2_UNSPEC = 0x00,
    V2_TCP4 = 0x11,
    V2_TCP6 = 0x21,
    V2_UNIX_STREAM = 0x31,
    TLV_FIXED = 3, /* type and length */
    TLV_CRC32C = 0x03
};

static const char v2_signature[12] = {'\r', '\n', '\r', '\n', 0,   '\r',
                                      '\n', 'Q',  'U',  'I',  'T', '\n'};

static unsigned byte_at(struct slice bytes, size_t i)
{
    return (unsigned char)bytes.p[i];
}

static unsigned pair_at(struct slice bytes, size_t i)
{
    return byte_at(bytes, i) << 8 | byte_at(bytes, i + 1);
}

static uint32_t crc32c_add(uint32_t crc, unsigned byte)
{
    crc ^= byte;
    for (unsigned bit = 0; bit < 8; bit++)
        crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
    return crc;
}

/* Checks the CRC32c (RFC 4960 appendix B) of the whole header, with the four bytes at `at` taken as
 * zeros. Computed bit by bit: checksums are rare and headers short. */
static bool crc_is_right(struct slice header, size_t at)
{
    uint32_t crc = 0xffffffff;

    for (size_t i = 0; i < header.n; i++)
        crc = crc32c_add(crc, i >= at && i < at + 4 ? 0 : byte_at(header, i));
    return (crc ^ 0xffffffff) == ((uint32_t)pair_at(header, at) << 16 | pair_at(header, at + 2));
}

/* Returns whether the bytes from `at` to the end are complete TLVs. A checksum must be correct and
 * may appear once. */
static bool tlvs_are_good(struct slice header, size_t at)
{
    size_t crc_at = 0;

    while (at < header.n) {
        if (header.n - at < TLV_FIXED)
            return false;
        unsigned type = byte_at(header, at), size = pair_at(header, at + 1);
        at += TLV_FIXED;
        if (header.n - at < size)
            return false;
        if (type == TLV_CRC32C) {
            if (size != 4 || crc_at)
                return false;
            crc_at = at;
        }
        at += size;
    }
    return !crc_at || crc_is_right(header, crc_at);
}

/* Source and destination are 108 bytes each: a path, padded with zeros. */
static void set_unix(struct address *address, const char *path)
{
    *address = (struct address){.length = sizeof address->local};
    address->local.sun_family = AF_UNIX;
    memcpy(address->local.sun_path, path, sizeof address->local.sun_path - 1);
}

/* Returns the size of the addresses of a family and transport; -1 if it is not valid for a
 * stream. */
static int addresses_size(unsigned family)
{
    switch (family) {
    case V2_UNSPEC: return 0;
    case V2_TCP4: return 12;
    case V2_TCP6: return 36;
    case V2_UNIX_STREAM: return 216;
    default: return -1;
    }
}

static bool read_v2(struct slice header, struct address *source)
{
    const char *address = header.p + V2_FIXED;
    unsigned family = byte_at(header, 13);
    int size = addresses_size(family);

    *source = (struct address){.length = 0};
    if (byte_at(header, 12) == V2_LOCAL) /* the proxy's own connection: the rest must be ignored */
        return true;
    if (size < 0 || header.n - V2_FIXED < (size_t)size)
        return false;
    if (family == V2_UNSPEC) /* family unknown, so the start of the TLVs is unknown too */
        return true;
    if (family == V2_UNIX_STREAM)
        set_unix(source, address);
    else {
        struct ip ip = ip_of_v4(address);
        if (family == V2_TCP6)
            memcpy(ip.bytes, address, sizeof ip.bytes);
        address_of_ip(&ip, (uint16_t)pair_at(header, V2_FIXED + (size_t)size - 4), source);
    }
    return tlvs_are_good(header, V2_FIXED + (size_t)size);
}

static enum proxy_header_scan scan_v2(struct slice bytes, struct proxy_header *header)
{
    size_t known = bytes.n < sizeof v2_signature ? bytes.n : sizeof v2_signature;

    if (memcmp(bytes.p, v2_signature, known) != 0)
        return PROXY_HEADER_BAD;
    if (bytes.n > 12 && byte_at(bytes, 12) != V2_LOCAL && byte_at(bytes, 12) != V2_PROXY)
        return PROXY_HEADER_BAD;
    if (bytes.n < V2_FIXED)
        return PROXY_HEADER_PARTIAL;
    header->local = byte_at(bytes, 12) == V2_LOCAL;
    header->size = V2_FIXED + pair_at(bytes, 14);
    if (header->size > PROXY_HEADER_MAX)
        return PROXY_HEADER_BAD;
    if (bytes.n < header->size)
        return PROXY_HEADER_PARTIAL;
    return read_v2((struct slice){bytes.p, header->size}, &header->source) ? PROXY_HEADER_WHOLE
                                                                           : PROXY_HEADER_BAD;
}

enum proxy_header_scan proxy_header_scan(struct slice bytes, struct proxy_header *header)
{
    if (bytes.n == 0)
        return PROXY_HEADER_PARTIAL;
    return bytes.p[0] == v2_signature[0] ? scan_v2(bytes, header) : scan_v1(bytes, header);
}
