/* key_url.h - URLs of JWK sets (RFC 3986; https and http: RFC 9110 section 4.2).
 *
 * This directory fetches keys of tokens by URL, on the main thread. It verifies no token. In
 * reading order: key_url.h, freshness.h, https_get.h (one fetch, by libcurl), kept_keys.h (the last
 * keys, over a restart), key_fetcher.h (when to fetch, and what then). */
#ifndef WEIR_JWKS_KEY_URL_H
#define WEIR_JWKS_KEY_URL_H

#include "net/address.h"

enum { KEY_URL_MAX = 2048 };

struct key_url {
    bool tls;
    struct slice host; /* without brackets */
    struct ip ip;      /* if is_ip is set */
    bool is_ip;
    uint16_t port;
};

/* Returns whether the text begins like a URL: with a scheme and "://". */
bool key_url_is_one(struct slice text);

/* Reads https://HOST[:PORT][/PATH][?QUERY]. http:// is valid for loopback hosts only, since anyone
 * on the way could replace the keys. Returns false, with `*why` (static text), if it is not valid;
 * so are user information and fragments, and bytes that other readers of URLs take differently. */
MUST_CHECK bool key_url_parse(struct slice text, struct key_url *url, const char **why);

#endif
