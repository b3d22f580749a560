/* Properties: the normal form and the path without dot segments equal those of slow, simple models;
 * the number of readings is bounded; no pattern or host breaks the matchers. */
#include "fuzz.h"
#include "http/path.h"
#include "http/readings.h"

enum { PATH_MAX_BYTES = 4096 };

/* The value of two hexadecimal digits; -1 if they are not hexadecimal. */
static int hex_pair(const char *p)
{
    static const char digits[] = "00112233445566778899AaBbCcDdEeFf";
    const char *high = memchr(digits, p[0], 32), *low = memchr(digits, p[1], 32);
    return high && low ? (int)((high - digits) / 2 * 16 + (low - digits) / 2) : -1;
}

static bool model_normal(const char *path, size_t n, char *out, size_t *size)
{
    static const char kept[] = "!\"#$%&'()*+,/:;<=>?@[\\]^`{|}";

    *size = 0;
    for (size_t i = 0; i < n; i++) {
        int value = path[i] != '%' ? (unsigned char)path[i]
                    : i + 2 < n    ? hex_pair(path + i + 1)
                                   : -1;
        if (path[i] != '%') {
            out[(*size)++] = path[i];
            continue;
        }
        if (value <= 0)
            return false;
        if (value < ' ' || value == 0x7f || memchr(kept, value, sizeof kept - 1)) {
            static const char digits[] = "0123456789ABCDEF";
            out[(*size)++] = '%';
            out[(*size)++] = digits[value >> 4];
            out[(*size)++] = digits[value & 15];
        } else
            out[(*size)++] = (char)value;
        i += 2;
    }
    return true;
}

static bool is_dots(struct slice segment, unsigned wanted)
{
    unsigned dots = 0;
    while (segment.n) {
        size_t n = segment.p[0] == '.' ? 1 : 3;
        if (n == 3 && (segment.n < 3 || segment.p[0] != '%' || hex_pair(segment.p + 1) != '.'))
            return false;
        segment.p += n, segment.n -= n;
        dots++;
    }
    return dots == wanted;
}

/* Splits at slashes, removes dot segments and joins the rest. Returns false if there are no dot
 * segments. */
static bool model_without_dots(const char *path, size_t n, char *out, size_t *size)
{
    static struct slice segments[PATH_MAX_BYTES];
    size_t count = 0, start = 1;
    bool slash_at_end = false, any = false;

    for (size_t i = start; i <= n; i++) {
        if (i < n && path[i] != '/')
            continue;
        struct slice segment = {path + start, i - start};
        slash_at_end = is_dots(segment, 1) || is_dots(segment, 2);
        any |= slash_at_end;
        if (is_dots(segment, 2))
            count -= count > 0;
        else if (!slash_at_end)
            segments[count++] = segment;
        start = i + 1;
    }
    *size = 0;
    for (size_t i = 0; i < count; i++) {
        out[(*size)++] = '/';
        memcpy(out + *size, segments[i].p, segments[i].n);
        *size += segments[i].n;
    }
    if (slash_at_end)
        out[(*size)++] = '/';
    return any;
}

static void check_readings(struct slice normal)
{
    static struct readings readings;
    struct slice reading;
    unsigned count = 0;

    readings_begin(&readings, normal);
    for (; readings_next(&readings, &reading); count++) {
        PROPERTY(count || slice_equal(reading, normal));
        PROPERTY(reading.n && reading.n <= normal.n && reading.p[0] == '/');
    }
    PROPERTY(count <= READINGS_MAX);
}

static void check_path(struct slice path)
{
    static char bytes[PATH_MAX_BYTES], wanted[PATH_MAX_BYTES + 1];
    struct text out = text_over(bytes, sizeof bytes);
    size_t size;
    bool ok = path_normalise(path, &out), model_ok = model_normal(path.p, path.n, wanted, &size);

    PROPERTY(ok == model_ok);
    PROPERTY(!ok || slice_equal(text_slice(&out), (struct slice){wanted, size}));
    if (path.n == 0 || path.p[0] != '/')
        return;
    if (ok)
        check_readings(text_slice(&out));
    out = text_over(bytes, sizeof bytes);
    PROPERTY(path_remove_dot_segments(path, &out));
    PROPERTY(path_has_dot_segments(path) == model_without_dots(path.p, path.n, wanted, &size));
    PROPERTY(slice_equal(text_slice(&out), (struct slice){wanted, size}));
    PROPERTY(path_matches(SLICE("/**"), path, &(size_t){0}));
    if (memchr(path.p, '*', path.n) == NULL)
        PROPERTY(path_matches(path, path, &(size_t){0}));
}

/* The input is PATH, LF, PATTERN. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *lf = size ? memchr(data, '\n', size) : NULL;
    size_t n = lf ? (size_t)(lf - data) : size, rest = lf ? size - n - 1 : 0;
    char *path = fuzz_copy(data, n), *pattern = fuzz_copy(data + size - rest, rest);
    check_path((struct slice){path, n});
    size_t steps = 0;
    (void)path_matches((struct slice){pattern, rest}, (struct slice){path, n}, &steps);
    PROPERTY(steps <= 3 * (size + 1));
    (void)host_matches((struct slice){pattern, rest}, (struct slice){path, n});
    free(path);
    free(pattern);
    return 0;
}
