/* identity_settings.h - section identity. */
#ifndef WEIR_POLICY_IDENTITY_SETTINGS_H
#define WEIR_POLICY_IDENTITY_SETTINGS_H

#include "base/hmac.h"
#include "base/position.h"
#include "http/head.h"
#include "net/address.h"
#include "policy/jwt.h"

struct json_path; /* content/json_path.h */
struct json_paths;
struct remote_keys;     /* policy/remote_keys.h */
struct identity_source; /* a row of identity_sources[] */

struct identity_from {
    const struct identity_source *source;
    char *name;          /* of the header, cookie, parameter or claim; NULL: the source has none */
    enum field_id field; /* of a header: FIELD_X_CLIENT_ID (fast lookup) or FIELD_OTHER */
    const struct json_path *path; /* of a json source */
    unsigned claim;               /* of a jwt source: its position in identity_settings.claims */
    struct position position;     /* in identity.from; line 0: a default */
};

enum { IDENTITY_FROM_MAX = 8, CLAIMS_MAX = 24, KEY_URLS_MAX = 8, KEYS_FROM_MAX = JWT_SETS_MAX - 1 };

/* Peers whose identity headers, cookies and query parameters are accepted, and the headers of
 * `per`. */
enum headers_from { HEADERS_FROM_TRUSTED, HEADERS_FROM_ANYONE };

/* Treatment of several cookies of one name: their hash is the identity, or the response is 400. */
enum cookies_treatment { COOKIES_HASH, COOKIES_REJECT };

/* Treatment of a token that is not valid: the next source applies, or the response is 401. */
enum jwt_invalid { JWT_INVALID_FALL_THROUGH, JWT_INVALID_401 };

struct jwt_settings {
    char *header;     /* that carries the token */
    char **keys_from; /* files and URLs, as written */
    unsigned keys_from_count;
    char *ca, *secret_file;              /* as written; NULL: none */
    bool has_secret;                     /* from either option */
    struct jwt_keys *sets[JWT_SETS_MAX]; /* of files and of the secret; references */
    unsigned set_count;
    struct remote_keys *remote[KEY_URLS_MAX]; /* references */
    unsigned remote_count;
    uint64_t refresh_us;     /* of keys by URL */
    char *issuer, *audience; /* NULL: any */
    uint64_t leeway_us;
    bool require_exp;
    enum jwt_invalid invalid;
};

struct identity_settings {
    struct identity_from from[IDENTITY_FROM_MAX];
    unsigned from_count;
    struct ip_range *trusted;
    unsigned trusted_count;
    bool trust_unix; /* trusted_proxies contains "unix:" */
    enum headers_from headers_from;
    enum cookies_treatment cookies;
    bool headers_from_anyone; /* headers_from is anyone, or trusted_proxies is empty */
    unsigned ipv4_prefix, ipv6_prefix;
    char *client_ip_header; /* read from trusted peers only */
    /* it is not X-Forwarded-For, which is replaced: drop it from peers that are not trusted */
    bool drops_client_ip_header;
    bool known_clients_only;  /* ids of unknown clients are skipped; the next source applies */
    bool hash;                /* hash all ids from headers */
    char *hash_key_text;      /* NULL: redis.key_prefix */
    struct hmac_key hash_key; /* of hashed ids */
    /* jwt sources in `from` and in `per` of limits, by their `claim` */
    const struct identity_from *claims[CLAIMS_MAX];
    unsigned claim_count;
    struct json_paths *paths; /* of json sources; NULL: there are none */
    struct jwt_settings jwt;
};

#endif
