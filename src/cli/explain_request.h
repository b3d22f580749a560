/* explain_request.h - the request that weir explain describes, from a command line like curl's. */
#ifndef WEIR_CLI_EXPLAIN_REQUEST_H
#define WEIR_CLI_EXPLAIN_REQUEST_H

#include "base/text.h"
#include "explain/explanation.h"

enum {
    EXPLAIN_HEADERS_MAX = 256,
    EXPLAIN_HEAD_MAX = 1 << 20,    /* bytes */
    EXPLAIN_CONTENT_MAX = 64 << 20 /* bytes */
};

/* The options. */
struct explain_order {
    const char *method; /* NULL: GET, or POST with content */
    const char *headers[EXPLAIN_HEADERS_MAX];
    unsigned header_count;
    bool has_content;
    struct slice content;    /* malloc'ed */
    const char *from;        /* NULL: 127.0.0.1 */
    const char *certificate; /* file; NULL: none */
    const char *url;
};

/* Adds an argument of -d to the content, "@FILE" stands for what the file contains. False: an error
 * was printed. */
MUST_CHECK bool explain_add_content(struct explain_order *order, const char *argument);

/* Makes the request. `head` receives its header; the caller frees its certificate. False: an error
 * was printed. */
MUST_CHECK bool explain_make_request(const struct explain_order *order, struct text *head,
                                     struct explain_request *request);

#endif
