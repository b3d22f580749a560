/* settings.h - the options of HTTP/2 (http2 in weir.yaml(5)). */
#ifndef WEIR_HTTP2_SETTINGS_H
#define WEIR_HTTP2_SETTINGS_H

#include <stdint.h>

struct http2_settings {
    uint32_t max_concurrent_streams; /* per connection */
    uint64_t initial_window;    /* bytes of content that a client may send before weir reads on */
    uint64_t max_header_list;   /* bytes of a request's fields: RFC 9113 section 6.5.2 */
    uint32_t resets_per_second; /* streams that a client may reset; twice as many at once */
};

#endif
