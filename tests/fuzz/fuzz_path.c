/* Normal forms are what a slow and simple model says, and no pattern or host makes the matchers stumble. */
#include "fuzz.h"
#include "http/path.h"

enum { PATH_MAX_BYTES = 4096 };

/* Decoded, cut at slashes, and put together again: a list of segments with a flag for a slash at the end. */
static bool model(const char *path, size_t n, char *out, size_t *size)
{
    static char decoded[PATH_MAX_BYTES];
    static struct slice segments[PATH_MAX_BYTES];
    size_t length = 0, count = 0, start = 1;
    bool slash_at_end = false;

    for (size_t i = 0; i < n && path[i] != '?'; i++) {
        unsigned value = (unsigned char)path[i];
        if (path[i] == '%') {
            static const char digits[] = "00112233445566778899AaBbCcDdEeFf";
            const char *high = i + 2 < n ? memchr(digits, path[i + 1], 32) : NULL;
            const char *low = i + 2 < n ? memchr(digits, path[i + 2], 32) : NULL;
            if (!high || !low)
                return false;
            value = (unsigned)((high - digits) / 2 * 16 + (low - digits) / 2);
            i += 2;
        }
        if (value == 0)
            return false;
        decoded[length++] = (char)value;
    }
    for (size_t i = start; i <= length; i++) {
        if (i < length && decoded[i] != '/')
            continue;
        struct slice segment = {decoded + start, i - start};
        bool dots = slice_equal(segment, SLICE(".")) || slice_equal(segment, SLICE(".."));
        slash_at_end = segment.n == 0 || dots;
        if (slice_equal(segment, SLICE("..")))
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
    if (slash_at_end || count == 0)
        out[(*size)++] = '/';
    return true;
}

static bool holds(struct slice whole, struct slice part)
{
    for (; whole.n >= part.n; whole.p++, whole.n--)
        if (slice_starts_with(whole, part))
            return true;
    return false;
}

static void check_path(struct slice path)
{
    static char bytes[PATH_MAX_BYTES], wanted[PATH_MAX_BYTES + 1];
    struct text out = text_over(bytes, sizeof bytes);
    size_t size;
    bool ok = path_normalise(path, &out);
    if (path.n && path.p[0] == '/') {
        bool model_ok = model(path.p, path.n, wanted, &size);
        PROPERTY(ok == model_ok);
        PROPERTY(!ok || slice_equal(text_slice(&out), (struct slice){wanted, size}));
    }
    if (ok && out.p[0] == '/') {
        PROPERTY(!holds(text_slice(&out), SLICE("//")) && !holds(text_slice(&out), SLICE("/../")));
        PROPERTY(path_matches(SLICE("/**"), text_slice(&out)));
        if (memchr(out.p, '*', out.n) == NULL)
            PROPERTY(path_matches(text_slice(&out), text_slice(&out)));
    }
}

/* The input is "PATH LF PATTERN". */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > 1024) /* one segment with many "*" is quadratic */
        return 0;
    const uint8_t *lf = size ? memchr(data, '\n', size) : NULL;
    size_t n = lf ? (size_t)(lf - data) : size, rest = lf ? size - n - 1 : 0;
    char *path = fuzz_copy(data, n), *pattern = fuzz_copy(data + size - rest, rest);
    check_path((struct slice){path, n});
    (void)path_matches((struct slice){pattern, rest}, (struct slice){path, n});
    (void)host_matches((struct slice){pattern, rest}, (struct slice){path, n});
    free(path);
    free(pattern);
    return 0;
}
