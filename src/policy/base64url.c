#include "policy/base64url.h"

static int digit(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '-' ? 62 : c == '_' ? 63 : -1;
}

bool base64url_decode(struct slice text, unsigned char *out, size_t cap, size_t *size)
{
    unsigned bits = 0, count = 0;

    *size = 0;
    if (text.n % 4 == 1 || text.n / 4 * 3 + (text.n % 4 ? text.n % 4 - 1 : 0) > cap)
        return false;
    for (size_t i = 0; i < text.n; i++) {
        int value = digit(text.p[i]);
        if (value < 0)
            return false;
        bits = bits << 6 | (unsigned)value;
        count += 6;
        if (count >= 8) {
            count -= 8;
            out[(*size)++] = (unsigned char)(bits >> count);
            bits &= (1u << count) - 1;
        }
    }
    return bits == 0;
}
