/* https_get.h - fetches a small document by GET, with libcurl on a libevent loop.
 *
 *   https_get() --> name (net/resolver.h) --> libcurl: TLS, HTTP/1.1 --redirect--> name --> ...
 *                                                     --> ended(context, result)
 *
 * Nothing blocks: names are resolved by weir's own resolver, so libcurl's is never used. libcurl
 * reads no environment, no .netrc and no proxy. Bounds: HTTPS_GET_US in all, HTTPS_CONTENT_MAX of
 * content (which is not decoded), HTTPS_HEADER_MAX of header fields, HTTPS_REDIRECTS_MAX redirects,
 * each to the same scheme. */
#ifndef WEIR_JWKS_HTTPS_GET_H
#define WEIR_JWKS_HTTPS_GET_H

#include <event2/event.h>

#include "jwks/freshness.h"
#include "net/resolver.h"

enum {
    HTTPS_GET_US = 10 * 1000000,
    HTTPS_CONTENT_MAX = 256 << 10, /* bytes */
    HTTPS_HEADER_MAX = 64 << 10,   /* of all responses of a fetch */
    HTTPS_REDIRECTS_MAX = 3
};

struct https_result {
    const char *why; /* NULL: it succeeded; else the reason, for a log line */
    struct slice content;
    struct freshness freshness;
};

struct https_client;
struct https_get;

/* Returns whether this build has libcurl. Without it, https_client_new() returns NULL. */
bool https_is_there(void);

/* `names` must outlive the client. Returns NULL if out of memory. */
struct https_client *https_client_new(struct event_base *base,
                                      const struct resolver_settings *names);
/* No fetch may be under way. The loop must run once more before its base is freed. NULL is
 * allowed. */
void https_client_free(struct https_client *client);

/* Starts a fetch of a valid URL (jwks/key_url.h). `ca`: a file with authorities, NULL: those of the
 * system. `ended` is called once, never during this call, unless the
 * fetch is cancelled; the result is valid during that call. NULL: out of memory. */
struct https_get *https_get(struct https_client *client, const char *url, const char *ca,
                            void (*ended)(void *context, const struct https_result *result),
                            void *context);
void https_get_cancel(struct https_get *get);

#endif
