/* jwt_internal.h - keys as jwt_keys.c stores and jwt_verify.c uses them. */
#ifndef WEIR_POLICY_JWT_INTERNAL_H
#define WEIR_POLICY_JWT_INTERNAL_H

#include <jansson.h>
#include <openssl/evp.h>
#include <stdatomic.h>

#include "policy/jwt.h"

/* JWS algorithms (RFC 7518 section 3.1, RFC 8037 section 3.1). There is no `none`. */
enum jwt_algorithm { JWT_HS256, JWT_RS256, JWT_ES256, JWT_EDDSA, JWT_ALGORITHM_COUNT };
extern const char *const jwt_algorithm_name[JWT_ALGORITHM_COUNT];

struct jwt_key {
    enum jwt_algorithm algorithm;
    char *kid;      /* NULL: none */
    EVP_PKEY *pkey; /* NULL for JWT_HS256 */
    size_t secret_size;
    unsigned char secret[JWT_SECRET_MAX]; /* JWT_HS256 */
};

struct jwt_keys {
    atomic_uint references;
    unsigned count;
    struct jwt_key *at[JWT_KEYS_MAX];
};

/* Parses a JSON object; duplicate names are refused (RFC 7515 section 4, RFC 7519 section 4).
 * `flags`: further ones of jansson. Returns NULL if it is none, with `*error` set. */
json_t *jwt_parse_object(const char *bytes, size_t size, size_t flags, json_error_t *error);

/* Returns a text member, or NULL if it is missing or no text. */
static inline const char *jwt_member(const json_t *object, const char *name)
{
    return json_string_value(json_object_get(object, name));
}

#endif
