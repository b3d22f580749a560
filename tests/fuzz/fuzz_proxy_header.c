/* Properties: a header is refused, incomplete, or complete with a bounded size. One byte more or
 * less does not change the result: a prefix is never complete, and is not refused if the whole is
 * valid. Bytes after the header are not examined. */
#include "fuzz.h"
#include "net/proxy_header.h"

static enum proxy_header_scan scan(const uint8_t *data, size_t size, struct proxy_header *header)
{
    char *bytes = fuzz_copy(data, size);
    enum proxy_header_scan result = proxy_header_scan((struct slice){bytes, size}, header);
    free(bytes);
    return result;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct proxy_header whole = {0}, part = {0};
    enum proxy_header_scan result = scan(data, size, &whole);

    PROPERTY(result != PROXY_HEADER_PARTIAL || size < PROXY_HEADER_MAX);
    size_t cut = size ? fuzz_choice(data, size) % size : 0;
    enum proxy_header_scan before = scan(data, cut, &part);
    if (result == PROXY_HEADER_PARTIAL)
        PROPERTY(before == PROXY_HEADER_PARTIAL);
    if (result != PROXY_HEADER_WHOLE)
        return 0;
    PROPERTY(whole.size <= size && whole.size <= PROXY_HEADER_MAX);
    PROPERTY(data[0] != 'P' || whole.size <= PROXY_HEADER_V1_MAX);
    PROPERTY(before == (cut < whole.size ? PROXY_HEADER_PARTIAL : PROXY_HEADER_WHOLE));
    PROPERTY(scan(data, whole.size, &part) == PROXY_HEADER_WHOLE && part.size == whole.size);
    PROPERTY(memcmp(&part.source, &whole.source, sizeof part.source) == 0);
    char text[ADDRESS_TEXT_MAX];
    PROPERTY(address_format(&whole.source, text)[0] != 0);
    return 0;
}
