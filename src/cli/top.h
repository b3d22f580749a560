/* top.h - `weir top`: the pieces of the live terminal view. */
#ifndef WEIR_CLI_TOP_H
#define WEIR_CLI_TOP_H

#include <stdio.h>

#include "base/json_read.h"
#include "net/address.h"
#include "net/tls.h"

enum { TOP_WHY_MAX = 512, TOP_EVENT_MAX = 4 << 20 };

/* --- top_events.c: the connection to /api/v1/events --- */

struct top_source {
    struct address address;
    char host[256];    /* value of Host */
    const char *token; /* NULL: none */
    bool secure;       /* uses TLS, with these: */
    char name[256];    /* that the listener's certificate must be valid for */
    struct tls_client *tls;
};

/* Reads "http://HOST:PORT", "https://HOST:PORT", "HOST:PORT" or "unix:/PATH"; sets address, host,
 * secure and name. Resolves host names. Returns CLI_GOOD; otherwise writes the reason to `why`
 * and returns CLI_USAGE if the text is no address, CLI_FAILED if the name cannot be resolved. */
MUST_CHECK int top_source_read(const char *text, struct top_source *source,
                               char why[static TOP_WHY_MAX]);

struct top_events;

/* Connects and sends the request; waits at most 5 s. NULL: the reason is in `why`. */
struct top_events *top_events_open(const struct top_source *source, char why[static TOP_WHY_MAX]);
void top_events_close(struct top_events *events);
/* The descriptor to wait for. */
int top_events_fd(const struct top_events *events);

enum top_read { TOP_READ_EVENT, TOP_READ_MORE, TOP_READ_END };
/* Reads what has arrived. TOP_READ_EVENT: `*data` is the data of one event, valid until the next
 * call; call again. TOP_READ_MORE: wait for the descriptor. TOP_READ_END: the connection has ended,
 * or the answer was an error: the reason is in `why`. */
enum top_read top_events_read(struct top_events *events, struct slice *data,
                              char why[static TOP_WHY_MAX]);

/* --- top_screen.c: a snapshot as text --- */

struct top_size {
    unsigned columns, lines; /* lines 0: no limit */
    bool plain;              /* no colours */
};

/* Writes a snapshot of /api/v1/events as lines of text to `out`. Bytes of names other than visible
 * ASCII are written as \xNN, so that no name reaches the terminal as a control sequence. */
void top_screen_write(FILE *out, const json_t *snapshot, const struct top_size *size);

#endif
