/* scan.h - search for the end of a run of bytes, many bytes at a time. Inspecting bytes is most of
 * the cost of parsing a head.
 *
 * Each function reads only [p, end). SSE2 is part of every x86-64. Without it, and for the last
 * bytes, 8 bytes or 1 byte are processed at a time. */
#ifndef WEIR_BASE_SCAN_H
#define WEIR_BASE_SCAN_H

#include <endian.h>
#include <stdint.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>

enum { SCAN_WIDTH = sizeof(__m128i) };

static inline __m128i scan_load(const char *p)
{
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}

/* Returns a bit for each marked byte; bit 0 is the first byte. */
static inline unsigned scan_bits(__m128i marked)
{
    return (unsigned)_mm_movemask_epi8(marked);
}
#endif

/* Sets the high bit of each control byte. Bytes after the first control byte may be marked wrongly,
 * because of a borrow. */
static inline uint64_t scan_controls(uint64_t eight)
{
    const uint64_t each = UINT64_C(0x0101010101010101);
    uint64_t not_del = eight ^ each * 0x7f;
    return (((eight - each * 0x20) & ~eight) | ((not_del - each) & ~not_del)) & each * 0x80;
}

/* Returns the first control byte (CTL of RFC 5234, including HTAB), or `end`. */
static inline const char *scan_to_control(const char *p, const char *end)
{
#ifdef __SSE2__
    for (; end - p >= SCAN_WIDTH; p += SCAN_WIDTH) {
        __m128i bytes = scan_load(p), del = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(0x7f)),
                low = _mm_cmpeq_epi8(_mm_min_epu8(bytes, _mm_set1_epi8(0x1f)), bytes);
        unsigned found = scan_bits(_mm_or_si128(low, del));
        if (found)
            return p + __builtin_ctz(found);
    }
#endif
    for (; end - p >= 8; p += 8) {
        uint64_t eight;
        memcpy(&eight, p, sizeof eight);
        uint64_t found = scan_controls(le64toh(eight));
        if (found)
            return p + __builtin_ctzll(found) / 8;
    }
    while (p < end && (unsigned char)*p >= 0x20 && *p != 0x7f)
        p++;
    return p;
}

/* Returns the first byte that is neither VCHAR nor obs-text, or `end`. */
static inline const char *scan_to_blank(const char *p, const char *end)
{
#ifdef __SSE2__
    for (; end - p >= SCAN_WIDTH; p += SCAN_WIDTH) {
        __m128i bytes = scan_load(p), del = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(0x7f)),
                low = _mm_cmpeq_epi8(_mm_min_epu8(bytes, _mm_set1_epi8(' ')), bytes);
        unsigned found = scan_bits(_mm_or_si128(low, del));
        if (found)
            return p + __builtin_ctz(found);
    }
#endif
    while (p < end && (unsigned char)*p > ' ' && *p != 0x7f)
        p++;
    return p;
}

/* Skips letters and "-", the characters of nearly all field names. It may stop early; the caller
 * continues from the returned byte. */
static inline const char *scan_past_letters(const char *p, const char *end)
{
#ifdef __SSE2__
    for (; end - p >= SCAN_WIDTH; p += SCAN_WIDTH) {
        /* Setting bit 0x20 lower-cases letters and maps no other byte to a letter. */
        __m128i bytes = scan_load(p), dash = _mm_cmpeq_epi8(bytes, _mm_set1_epi8('-')),
                from_a = _mm_sub_epi8(_mm_or_si128(bytes, _mm_set1_epi8(0x20)), _mm_set1_epi8('a')),
                letter = _mm_cmpeq_epi8(_mm_min_epu8(from_a, _mm_set1_epi8('z' - 'a')), from_a);
        unsigned others = ~scan_bits(_mm_or_si128(letter, dash)) & 0xffff;
        if (others)
            return p + __builtin_ctz(others);
    }
#else
    (void)end;
#endif
    return p;
}

#endif
