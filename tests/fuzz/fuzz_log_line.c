/* Parses a line of an access log. Properties: every slice of the result lies within the line, and a
 * request has a method and a target. */
#include "fuzz.h"
#include "replay/log_line.h"

static void check_inside(struct slice s, const char *bytes, size_t size)
{
    PROPERTY(s.n == 0 || (s.p >= bytes && s.p + s.n <= bytes + size));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *bytes = fuzz_copy(data, size);
    struct log_line line;

    if (log_line_parse(bytes, size, &line) == LOG_LINE_REQUEST) {
        const struct slice all[] = {line.address, line.client, line.user,
                                    line.method,  line.target, line.host};
        for (unsigned i = 0; i < COUNT_OF(all); i++)
            check_inside(all[i], bytes, size);
        PROPERTY(line.method.n > 0 && line.target.n > 0 && line.status < 600);
    }
    free(bytes);
    return 0;
}
