/* jwt.h - JSON Web Tokens (RFC 7519): signed tokens in compact serialization (RFC 7515), keys in
 * JWK sets (RFC 7517), and the checks of RFC 8725.
 *
 *   JWK set, secret --jwt_keys.c--> struct jwt_keys --.
 *   token ----------------------------jwt_verify.c----+--> struct jwt_token --> claims
 *                                                          token_cache.c: verified tokens
 *
 * These files read bytes and return claims. They open no files and have no HTTP. JSON is parsed by
 * jansson, signatures are verified by OpenSSL. */
#ifndef WEIR_POLICY_JWT_H
#define WEIR_POLICY_JWT_H

#include <stdint.h>

#include "base/slice.h"

enum {
    JWT_SETS_MAX = 17,        /* sets of keys: files, URLs and the secret */
    JWT_TOKEN_MAX = 16 << 10, /* bytes of a token; longer ones are malformed */
    JWT_HEADER_MAX = 4 << 10, /* of its encoded header, which is parsed before it is verified */
    JWT_KEYS_MAX = 64,        /* usable keys of a set */
    JWT_KEY_ID_MAX = 256,     /* bytes of a kid */
    JWT_SECRET_MIN = 32,      /* bytes of an HS256 key (RFC 7518 section 3.2) */
    JWT_SECRET_MAX = 1024,
    JWT_WHY_MAX = 160
};

/* --- keys --- */

/* Public keys and secrets. Each key has one algorithm: RS256, ES256, EdDSA with Ed25519, or HS256.
 * The key decides the algorithm, never the token (RFC 8725 section 3.1). Immutable once complete;
 * then any thread may verify with it. */
struct jwt_keys;

struct jwt_keys *jwt_keys_new(void); /* one reference; NULL: no memory */
struct jwt_keys *jwt_keys_hold(struct jwt_keys *keys);
void jwt_keys_drop(struct jwt_keys *keys); /* NULL is allowed */

/* Who can read a set: secrets and private keys in public ones are skipped. */
enum jwt_set_kind { JWT_SET_PRIVATE, JWT_SET_PUBLIC };

struct jwt_set_report {
    unsigned usable, skipped; /* skipped: for encryption, or of another type or algorithm */
    bool has_private;         /* a key contains its private part */
    char why[JWT_WHY_MAX];    /* why the set was refused, or why the first key was skipped */
};

/* Adds the keys of a JWK set. Returns false if the set is malformed, has more than JWT_KEYS_MAX
 * usable keys, or two keys with one kid and algorithm. */
MUST_CHECK bool jwt_keys_add_set(struct jwt_keys *keys, struct slice json, enum jwt_set_kind kind,
                                 struct jwt_set_report *report);

/* Adds an HS256 key without kid to an empty set. Copies `secret`, which has JWT_SECRET_MIN to
 * JWT_SECRET_MAX bytes. */
void jwt_keys_add_secret(struct jwt_keys *keys, struct slice secret);

/* --- verification --- */

/* name; label in metrics; text */
#define JWT_FAULTS(X)                                                                              \
    X(JWT_GOOD, "none", "")                                                                        \
    X(JWT_REPEATED, "repeated", "the header occurs more than once")                                \
    X(JWT_MALFORMED, "malformed", "it is no signed JWT")                                           \
    X(JWT_WRONG_ALGORITHM, "algorithm", "no key has its algorithm")                                \
    X(JWT_UNKNOWN_KEY, "unknown_key", "no key has its kid, or it has none and several keys fit")   \
    X(JWT_NO_KEYS, "no_keys", "the keys of its issuer are not known yet")                          \
    X(JWT_BAD_SIGNATURE, "signature", "the signature does not match")                              \
    X(JWT_BAD_CLAIMS, "claims",                                                                    \
      ("its claims cannot be read: they are no valid JSON object, a name occurs twice or "         \
       "contains U+0000, or exp or nbf is no number"))                                             \
    X(JWT_EXPIRED, "expired", "it has expired")                                                    \
    X(JWT_NOT_YET_VALID, "not_yet_valid", "it is not valid yet")                                   \
    X(JWT_NO_EXPIRY, "no_expiry", "it has no exp")                                                 \
    X(JWT_WRONG_ISSUER, "issuer", "it is from another issuer")                                     \
    X(JWT_WRONG_AUDIENCE, "audience", "it is for another audience")

enum jwt_fault {
#define X(name, label, text) name,
    JWT_FAULTS(X)
#undef X
        JWT_FAULT_COUNT
};

extern const char *const jwt_fault_label[JWT_FAULT_COUNT];
extern const char *const jwt_fault_text[JWT_FAULT_COUNT];

struct jwt_rules {
    const struct jwt_keys *sets[JWT_SETS_MAX]; /* NULL: not known yet */
    unsigned set_count;
    const char *issuer, *audience; /* NULL: any */
    int64_t leeway_s;              /* allowed clock difference, for exp and nbf */
    bool require_exp;
};

struct jwt_token {
    int64_t from_s,
        until_s; /* valid from from_s until before until_s, Unix time; leeway included */
    void *claims;
};

/* Keys of several sets may have the same kid: each is tried.
 *
 * Verifies the signature, then exp, nbf, iss and aud (RFC 7519 section 7.2). Tokens with a `crit`
 * header are malformed. After JWT_GOOD, the caller frees `*token` with jwt_token_free(). Takes 20
 * to 200 us, of which parsing the header is up to 120 us. */
MUST_CHECK enum jwt_fault jwt_verify(const struct jwt_rules *rules, struct slice text,
                                     int64_t now_s, struct jwt_token *token);
void jwt_token_free(struct jwt_token *token);
/* Returns JWT_GOOD if there is a key of the token's algorithm with its kid. Verifies nothing. */
MUST_CHECK enum jwt_fault jwt_find_key(const struct jwt_rules *rules, struct slice text);

/* Returns a claim as text. An integer is written in decimal into `room`; other text belongs to the
 * token. Returns an empty slice if the claim is missing, empty, contains control bytes, or is
 * neither a text nor an integer of 64 bits. A number with a fraction or an exponent is an integer
 * if it equals one below 2^53. */
enum { JWT_NUMBER_MAX = 24 };
struct slice jwt_claim(const struct jwt_token *token, const char *name,
                       char room[static JWT_NUMBER_MAX]);

#endif
