/* version.h - the protocol that carried a message, and its names. The minor version of HTTP/1 is in
 * the message's head. */
#ifndef WEIR_HTTP_VERSION_H
#define WEIR_HTTP_VERSION_H

#include "base/slice.h"

enum http_version { HTTP_VERSION_1, HTTP_VERSION_2 };

/* Returns the name as in access logs. */
static inline struct slice http_version_name(enum http_version version, uint8_t minor)
{
    if (version == HTTP_VERSION_2)
        return SLICE("HTTP/2.0");
    return minor ? SLICE("HTTP/1.1") : SLICE("HTTP/1.0");
}

/* Returns whether fields such as TE belong to the connection and must be named in Connection.
 * HTTP/2 has no such fields (RFC 9113 section 8.2.2). */
static inline bool http_version_has_connection_fields(enum http_version version)
{
    return version == HTTP_VERSION_1;
}

#endif
