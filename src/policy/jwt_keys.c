/* jwt_keys.c - reads JWK sets (RFC 7517; parameters of the key types: RFC 7518 section 6, RFC
 * 8037). */
#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/param_build.h>
#include <stdio.h>

#include "base/memory.h"
#include "policy/base64url.h"
#include "policy/jwt_internal.h"

enum {
    MEMBER_MAX = 1024,    /* bytes of a decoded member */
    RSA_BITS_MIN = 2048,  /* RFC 7518 section 3.3 */
    RSA_BITS_MAX = 8192,  /* bounds the cost of a verification */
    RSA_EXPONENT_MAX = 8, /* bytes */
    COORDINATE = 32       /* bytes of a coordinate or key on P-256 and Ed25519 */
};

const char *const jwt_algorithm_name[JWT_ALGORITHM_COUNT] = {
    [JWT_HS256] = "HS256", [JWT_RS256] = "RS256", [JWT_ES256] = "ES256", [JWT_EDDSA] = "EdDSA"};

struct jwt_keys *jwt_keys_new(void)
{
    struct jwt_keys *keys = calloc(1, sizeof *keys);

    if (keys)
        atomic_init(&keys->references, 1);
    return keys;
}

struct jwt_keys *jwt_keys_hold(struct jwt_keys *keys)
{
    atomic_fetch_add_explicit(&keys->references, 1, memory_order_relaxed);
    return keys;
}

static void key_free(struct jwt_key *key)
{
    if (!key)
        return;
    EVP_PKEY_free(key->pkey);
    free(key->kid);
    OPENSSL_cleanse(key->secret, sizeof key->secret);
    free(key);
}

void jwt_keys_drop(struct jwt_keys *keys)
{
    if (!keys || atomic_fetch_sub_explicit(&keys->references, 1, memory_order_acq_rel) > 1)
        return;
    for (unsigned i = 0; i < keys->count; i++)
        key_free(keys->at[i]);
    free(keys);
}

json_t *jwt_parse_object(const char *bytes, size_t size, size_t flags, json_error_t *error)
{
    json_t *root = json_loadb(bytes, size, JSON_REJECT_DUPLICATES | flags, error);

    if (root && !json_is_object(root)) {
        json_decref(root);
        return NULL;
    }
    return root;
}

/* --- Key types --- */

struct bytes {
    unsigned char p[MEMBER_MAX];
    size_t n;
};

static bool decode_member(const json_t *jwk, const char *name, struct bytes *out)
{
    const char *text = jwt_member(jwk, name);
    return text && base64url_decode(slice_of(text), out->p, sizeof out->p, &out->n) && out->n > 0;
}

/* Creates a public key from parameters, and checks that it is one: a point must lie on its
 * curve. */
static EVP_PKEY *public_key(const char *type, OSSL_PARAM_BLD *build)
{
    OSSL_PARAM *params = OSSL_PARAM_BLD_to_param(build);
    EVP_PKEY_CTX *from = EVP_PKEY_CTX_new_from_name(NULL, type, NULL), *check = NULL;
    EVP_PKEY *pkey = NULL;

    if (params && from && EVP_PKEY_fromdata_init(from) == 1)
        EVP_PKEY_fromdata(from, &pkey, EVP_PKEY_PUBLIC_KEY, params);
    if (pkey && (check = EVP_PKEY_CTX_new_from_pkey(NULL, pkey, NULL)) != NULL &&
        EVP_PKEY_public_check(check) != 1) {
        EVP_PKEY_free(pkey);
        pkey = NULL;
    }
    EVP_PKEY_CTX_free(check);
    EVP_PKEY_CTX_free(from);
    OSSL_PARAM_free(params);
    return pkey;
}

static const char *read_rsa(const json_t *jwk, struct jwt_key *key)
{
    struct bytes n, e;

    if (!decode_member(jwk, "n", &n) || !decode_member(jwk, "e", &e) || e.n > RSA_EXPONENT_MAX)
        return "has no valid n and e";
    BIGNUM *modulus = BN_bin2bn(n.p, (int)n.n, NULL), *exponent = BN_bin2bn(e.p, (int)e.n, NULL);
    OSSL_PARAM_BLD *build = OSSL_PARAM_BLD_new();
    int bits = modulus ? BN_num_bits(modulus) : 0;
    bool sized = bits >= RSA_BITS_MIN && bits <= RSA_BITS_MAX;

    if (sized && exponent && build &&
        OSSL_PARAM_BLD_push_BN(build, OSSL_PKEY_PARAM_RSA_N, modulus) &&
        OSSL_PARAM_BLD_push_BN(build, OSSL_PKEY_PARAM_RSA_E, exponent))
        key->pkey = public_key("RSA", build);
    OSSL_PARAM_BLD_free(build);
    BN_free(exponent);
    BN_free(modulus);
    return !sized ? "is an RSA key of less than 2048 or more than 8192 bits"
                  : "is no valid RSA key";
}

static const char *read_ec(const json_t *jwk, struct jwt_key *key)
{
    unsigned char point[1 + 2 * COORDINATE] = {4}; /* uncompressed (SEC 1 section 2.3.3) */
    const char *curve = jwt_member(jwk, "crv");
    struct bytes x, y;

    if (!curve || strcmp(curve, "P-256") != 0)
        return "is on another curve than P-256";
    if (!decode_member(jwk, "x", &x) || !decode_member(jwk, "y", &y) || x.n != COORDINATE ||
        y.n != COORDINATE)
        return "has no valid x and y";
    memcpy(point + 1, x.p, COORDINATE);
    memcpy(point + 1 + COORDINATE, y.p, COORDINATE);
    OSSL_PARAM_BLD *build = OSSL_PARAM_BLD_new();
    if (build &&
        OSSL_PARAM_BLD_push_utf8_string(build, OSSL_PKEY_PARAM_GROUP_NAME, "prime256v1", 0) &&
        OSSL_PARAM_BLD_push_octet_string(build, OSSL_PKEY_PARAM_PUB_KEY, point, sizeof point))
        key->pkey = public_key("EC", build);
    OSSL_PARAM_BLD_free(build);
    return "is no point on P-256";
}

static const char *read_okp(const json_t *jwk, struct jwt_key *key)
{
    const char *curve = jwt_member(jwk, "crv");
    struct bytes x;

    if (!curve || strcmp(curve, "Ed25519") != 0)
        return "is on another curve than Ed25519";
    if (!decode_member(jwk, "x", &x) || x.n != COORDINATE)
        return "has no valid x";
    key->pkey = EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, x.p, x.n);
    return "is no valid Ed25519 key";
}

static const char *read_oct(const json_t *jwk, struct jwt_key *key)
{
    struct bytes k;

    if (!decode_member(jwk, "k", &k))
        return "has no valid k";
    if (k.n < JWT_SECRET_MIN)
        return "is a secret of less than 32 bytes";
    memcpy(key->secret, k.p, k.n);
    key->secret_size = k.n;
    OPENSSL_cleanse(k.p, k.n);
    return NULL;
}

/* `read` sets the key's pkey or secret, and returns the reason to give if there is none. */
static const struct key_type {
    const char *kty;
    enum jwt_algorithm algorithm;
    const char *(*read)(const json_t *jwk, struct jwt_key *key);
} key_types[] = {{"RSA", JWT_RS256, read_rsa},
                 {"EC", JWT_ES256, read_ec},
                 {"OKP", JWT_EDDSA, read_okp},
                 {"oct", JWT_HS256, read_oct}};

/* --- Sets --- */

static const struct key_type *type_of(const json_t *jwk)
{
    const char *kty = jwt_member(jwk, "kty");

    for (unsigned i = 0; kty && i < COUNT_OF(key_types); i++)
        if (strcmp(kty, key_types[i].kty) == 0)
            return &key_types[i];
    return NULL;
}

static bool may_verify(const json_t *jwk)
{
    const char *use = jwt_member(jwk, "use");
    const json_t *operations = json_object_get(jwk, "key_ops"), *operation;
    size_t i;

    if (use && strcmp(use, "sig") != 0)
        return false;
    if (!json_is_array(operations))
        return true;
    json_array_foreach(operations, i, operation) if (json_is_string(operation) &&
                                                     strcmp(json_string_value(operation),
                                                            "verify") == 0) return true;
    return false;
}

static const char no_memory[] = "cannot be stored: out of memory";

/* Reads a JWK into `*key`. Returns NULL, or why it cannot be used. */
static const char *read_jwk(const json_t *jwk, struct jwt_key *key)
{
    const struct key_type *type = type_of(jwk);
    const char *algorithm = jwt_member(jwk, "alg"), *kid = jwt_member(jwk, "kid");

    if (!type)
        return "has a kty other than RSA, EC, OKP and oct";
    if (!may_verify(jwk))
        return "is not for signatures";
    if (algorithm && strcmp(algorithm, jwt_algorithm_name[type->algorithm]) != 0)
        return "has an alg other than RS256, ES256, EdDSA and HS256";
    if (json_object_get(jwk, "kid") && (!kid || !*kid || strlen(kid) > JWT_KEY_ID_MAX))
        return "has a kid that is no text of 1 to 256 bytes";
    key->algorithm = type->algorithm;
    const char *why = type->read(jwk, key);
    ERR_clear_error();
    if (!key->pkey && !key->secret_size)
        return why;
    return kid && !(key->kid = strdup(kid)) ? no_memory : NULL;
}

static bool is_taken(const struct jwt_keys *keys, const struct jwt_key *key)
{
    for (unsigned i = 0; key->kid && i < keys->count; i++)
        if (keys->at[i]->kid && strcmp(keys->at[i]->kid, key->kid) == 0 &&
            keys->at[i]->algorithm == key->algorithm)
            return true;
    return false;
}

/* Everyone who can read such a key can sign tokens. */
static const char *disclosure(const json_t *jwk, const struct jwt_key *key)
{
    return !key->pkey                  ? "is a secret, which anyone can read at the URL"
           : json_object_get(jwk, "d") ? "is a private key, which anyone can read at the URL"
                                       : NULL;
}

/* Adds one key, or counts it as skipped. Returns false if the set must be refused. */
static bool add_key(struct jwt_keys *keys, const json_t *jwk, unsigned number,
                    enum jwt_set_kind kind, struct jwt_set_report *report)
{
    struct jwt_key *key = calloc(1, sizeof *key);
    const char *why = !key ? no_memory : json_is_object(jwk) ? read_jwk(jwk, key) : "is no object";
    bool good = why != no_memory;

    if (!why && kind == JWT_SET_PUBLIC)
        why = disclosure(jwk, key);
    if (!why && is_taken(keys, key))
        good = false, why = "has the kid and the algorithm of another key";
    else if (!why && keys->count == JWT_KEYS_MAX)
        good = false, why = "is one too many; expected at most 64 keys for signatures";
    if (why && (!good || report->skipped == 0))
        snprintf(report->why, sizeof report->why, "key %u %s", number, why);
    report->has_private |= !why && key->pkey && json_object_get(jwk, "d");
    report->skipped += why && good;
    report->usable += !why;
    if (why)
        key_free(key);
    else
        keys->at[keys->count++] = key;
    return good;
}

bool jwt_keys_add_set(struct jwt_keys *keys, struct slice json, enum jwt_set_kind kind,
                      struct jwt_set_report *report)
{
    json_error_t error = {.text = "no object"};
    json_t *root = jwt_parse_object(json.p, json.n, 0, &error), *jwk;
    const json_t *list = json_object_get(root, "keys");
    bool good = json_is_array(list);
    size_t i;

    *report = (struct jwt_set_report){.usable = 0};
    if (!root)
        snprintf(report->why, sizeof report->why, "no JSON object: line %d: %.*s",
                 error.line > 0 ? error.line : 1, JWT_WHY_MAX - 64, error.text);
    else if (!good)
        snprintf(report->why, sizeof report->why, "no \"keys\": [ ... ] in it");
    json_array_foreach(list, i, jwk) if (good) good =
        add_key(keys, jwk, (unsigned)i + 1, kind, report);
    json_decref(root);
    return good;
}

void jwt_keys_add_secret(struct jwt_keys *keys, struct slice secret)
{
    struct jwt_key *key = xcalloc(1, sizeof *key);
    key->algorithm = JWT_HS256;
    key->secret_size = secret.n;
    memcpy(key->secret, secret.p, secret.n);
    keys->at[keys->count++] = key;
}
