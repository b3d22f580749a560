/* hpack_fields.c - fields for nghttp2, and which of them enter the table of HPACK (RFC 7541), by
 * which later messages of the connection refer to them. */
#include "base/hash.h"
#include "http2/session_internal.h"

/* Fields whose values change from one message to the next, or belong to one client of many: a bit
 * each. Those that weir alone writes are in its spelling. */
static unsigned varying_bit(struct slice name)
{
    switch (name.n) {
    case 9: return slice_equal(name, SLICE("RateLimit")) ? 1 << 0 : 0;
    case 11:
        return slice_equal(name, SLICE("Retry-After"))          ? 1 << 1
               : slice_equal_nocase(name, SLICE("Traceparent")) ? 1 << 2
                                                                : 0;
    case 12: return slice_equal_nocase(name, SLICE("X-Request-Id")) ? 1 << 3 : 0;
    case 15: return slice_equal_nocase(name, SLICE("X-Forwarded-For")) ? 1 << 4 : 0;
    case 17:
        return slice_equal(name, SLICE("X-RateLimit-Reset"))   ? 1 << 5
               : slice_equal(name, SLICE("X-Rate-Limit-Used")) ? 1 << 6
                                                               : 0;
    case 18: return slice_equal(name, SLICE("X-Rate-Limit-Reset")) ? 1 << 7 : 0;
    case 21: return slice_equal(name, SLICE("X-RateLimit-Remaining")) ? 1 << 8 : 0;
    default: return 0;
    }
}

/* The first value of a field that varies goes into the table of HPACK, so that later ones refer to
 * its name there. These stay out of the table (RFC 7541 section 6.2.3): they would evict fields
 * that later messages repeat, and nghttp2 compares a value with each of the same name there. No
 * cookie enters it: it is a secret, and its name is in the static table. */
static uint8_t flags_of(struct http2_session *s, struct slice name)
{
    if (name.n == 6 && slice_equal_nocase(name, SLICE("Cookie")))
        return NGHTTP2_NV_FLAG_NO_INDEX;
    unsigned bit = varying_bit(name);
    bool known = s->varying_sent & bit;

    s->varying_sent |= bit;
    return known ? NGHTTP2_NV_FLAG_NO_INDEX : NGHTTP2_NV_FLAG_NONE;
}

nghttp2_nv http2_pair(struct http2_session *s, struct slice name, struct slice value)
{
    return (nghttp2_nv){(uint8_t *)(uintptr_t)name.p, (uint8_t *)(uintptr_t)value.p, name.n,
                        value.n, flags_of(s, name)};
}

/* ---- never indexed --------------------------------------------------------------------------- */

/* What was received as never indexed must be sent so (RFC 7541 section 6.2.3). These always are:
 * weir indexes no cookie, nghttp2 no Authorization. */
static bool is_never_indexed(struct slice name)
{
    return slice_equal(name, SLICE("cookie")) || slice_equal(name, SLICE("authorization"));
}

uint64_t http2_never_indexed_bit(struct slice name)
{
    uint64_t hash = FNV_START;

    if (is_never_indexed(name))
        return 0;
    if (slice_equal(name, SLICE("host")))
        name = SLICE(":authority"); /* as weir sends it */
    for (size_t i = 0; i < name.n; i++)
        hash = fnv_byte(hash, (char)(name.p[i] | 0x20)); /* in any case */
    return UINT64_C(1) << (hash >> 58);
}

void http2_never_index(nghttp2_nv *pairs, size_t count, uint64_t names)
{
    for (nghttp2_nv *pair = pairs; names && pair < pairs + count; pair++)
        if (names & http2_never_indexed_bit((struct slice){(char *)pair->name, pair->namelen}))
            pair->flags |= NGHTTP2_NV_FLAG_NO_INDEX;
}

/* ---- responses ------------------------------------------------------------------------------- */

size_t http2_write_pairs(struct http2_session *s, unsigned status, const struct http2_field *fields,
                         unsigned count, uint64_t never_indexed)
{
    struct http2_scratch *scratch = s->scratch;

    if (count >= HTTP2_SENT_FIELDS_MAX)
        return 0;
    scratch->status[0] = (char)('0' + status / 100 % 10);
    scratch->status[1] = (char)('0' + status / 10 % 10);
    scratch->status[2] = (char)('0' + status % 10);
    scratch->pairs[0] = http2_pair(s, SLICE(":status"), (struct slice){scratch->status, 3});
    for (unsigned i = 0; i < count; i++)
        scratch->pairs[i + 1] = http2_pair(s, fields[i].name, fields[i].value);
    if (never_indexed)
        http2_never_index(scratch->pairs, count + 1, never_indexed);
    return count + 1;
}
