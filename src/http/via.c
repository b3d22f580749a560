#include "http/via.h"

#include <stdio.h>

#include "base/text.h"

enum { LINE_MAX = 32, LINES = 3 }; /* HTTP/1.0, 1.1 and 2 */

static char pseudonym[sizeof "weir-01234567"] = "weir";
static char line_bytes[LINES][LINE_MAX];
static struct slice lines[LINES] = {SLICE("Via: 1.0 weir\r\n"), SLICE("Via: 1.1 weir\r\n"),
                                    SLICE("Via: 2 weir\r\n")};

void via_set_pseudonym(uint64_t random)
{
    static const char *const versions[LINES] = {"1.0", "1.1", "2"};

    snprintf(pseudonym, sizeof pseudonym, "weir-%08x", (unsigned)(random & 0xffffffff));
    for (unsigned i = 0; i < LINES; i++) {
        snprintf(line_bytes[i], LINE_MAX, "Via: %s %s\r\n", versions[i], pseudonym);
        lines[i] = slice_of(line_bytes[i]);
    }
}

struct slice via_line(enum http_version version, uint8_t minor)
{
    return lines[version == HTTP_VERSION_2 ? 2 : minor != 0];
}

/* Returns the received-by of an element, without its comment. */
static struct slice received_by(struct slice element)
{
    const char *end = element.p + element.n, *p = element.p;

    while (p < end && *p != ' ' && *p != '\t')
        p++;
    while (p < end && (*p == ' ' || *p == '\t'))
        p++;
    const char *start = p;
    while (p < end && *p != ' ' && *p != '\t')
        p++;
    return (struct slice){start, (size_t)(p - start)};
}

static unsigned passes_in(struct slice list)
{
    const char *p = list.p, *end = p + list.n;
    unsigned count = 0;

    while (p < end) {
        const char *comma = memchr(p, ',', (size_t)(end - p)), *stop = comma ? comma : end;
        struct slice element = slice_trim_ows((struct slice){p, (size_t)(stop - p)});
        count += slice_equal(received_by(element), slice_of(pseudonym));
        p = comma ? comma + 1 : end;
    }
    return count;
}

unsigned via_passes(const struct fields *fields)
{
    unsigned count = 0;

    for (unsigned i = 0; i < fields->count; i++)
        if (fields->at[i].id == FIELD_VIA)
            count += passes_in(fields->at[i].value);
    return count;
}
