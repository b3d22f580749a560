/* field_line.h - writes field lines. */
#ifndef WEIR_HTTP_FIELD_LINE_H
#define WEIR_HTTP_FIELD_LINE_H

#include "base/text.h"
#include "http/via.h"

/* Writes a complete field line: WRITE_FIELD(out, "Via", value). */
#define WRITE_FIELD(out, name, value)                                                              \
    field_line_write((out), name ": ", sizeof(name ": ") - 1, (value))

/* Writes `start`, `value` and CRLF. */
static inline void field_line_write(struct text *out, const char *start, size_t n,
                                    struct slice value)
{
    text_bytes(out, start, n);
    text_put(out, value);
    text_literal(out, "\r\n");
}

/* The same, for a name that is not constant. */
static inline void field_line_put(struct text *out, struct slice name, struct slice value)
{
    text_put(out, name);
    field_line_write(out, ": ", 2, value);
}

/* RFC 9110 section 7.6.3: appended after the received Via fields, with the version received. */
static inline void via_write(struct text *out, enum http_version version, uint8_t minor)
{
    text_put(out, via_line(version, minor));
}

#endif
