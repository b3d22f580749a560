/* jwt_verify.c - verifies tokens. The payload is parsed only after its signature was verified. */
#include <errno.h>
#include <math.h>
#include <openssl/crypto.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <stdlib.h>

#include "http/chars.h"
#include "policy/base64url.h"
#include "policy/jwt_internal.h"

const char *const jwt_fault_label[JWT_FAULT_COUNT] = {
#define X(name, label, text) [name] = label,
    JWT_FAULTS(X)
#undef X
};

const char *const jwt_fault_text[JWT_FAULT_COUNT] = {
#define X(name, label, text) [name] = text,
    JWT_FAULTS(X)
#undef X
};

enum { HALF = 32, DER_MAX = 80, DIGEST = 32 };

/* The three parts of the compact serialization (RFC 7515 section 7.1). */
struct token_parts {
    struct slice header, payload, signature, input; /* input: what is signed */
};

static bool split_token(struct slice text, struct token_parts *parts)
{
    const char *end = text.p + text.n;
    const char *one = memchr(text.p, '.', text.n);
    const char *two = one ? memchr(one + 1, '.', (size_t)(end - one - 1)) : NULL;

    if (!two || memchr(two + 1, '.', (size_t)(end - two - 1)))
        return false;
    parts->header = (struct slice){text.p, (size_t)(one - text.p)};
    parts->payload = (struct slice){one + 1, (size_t)(two - one - 1)};
    parts->signature = (struct slice){two + 1, (size_t)(end - two - 1)};
    parts->input = (struct slice){text.p, (size_t)(two - text.p)};
    return parts->header.n <= JWT_HEADER_MAX;
}

static json_t *decode_header(struct slice part)
{
    unsigned char bytes[JWT_HEADER_MAX];
    json_error_t error;
    size_t size;

    if (!base64url_decode(part, bytes, sizeof bytes, &size))
        return NULL;
    return jwt_parse_object((const char *)bytes, size, 0, &error);
}

/* --- Keys --- */

/* Keys that may verify a token. Within a set, kid and algorithm name one key. */
struct fitting {
    const struct jwt_key *at[JWT_SETS_MAX];
    unsigned count;  /* may be larger than the array */
    unsigned of_kid; /* keys with the kid, also of other algorithms */
};

static void add_fitting(struct fitting *fitting, const struct jwt_keys *keys, const char *algorithm,
                        const char *kid)
{
    for (unsigned i = 0; keys && i < keys->count; i++) {
        const struct jwt_key *key = keys->at[i];
        bool same_kid = !kid || (key->kid && strcmp(key->kid, kid) == 0);
        fitting->of_kid += same_kid;
        if (!same_kid || strcmp(jwt_algorithm_name[key->algorithm], algorithm) != 0)
            continue;
        if (fitting->count < COUNT_OF(fitting->at))
            fitting->at[fitting->count] = key;
        fitting->count++;
    }
}

/* Finds the keys of the token's algorithm with its kid, at most one per set. A token without kid
 * needs a single key of its algorithm. */
static enum jwt_fault choose_keys(const struct jwt_rules *rules, const char *algorithm,
                                  const char *kid, struct fitting *fitting)
{
    bool all_known = true;

    for (unsigned i = 0; i < rules->set_count; i++) {
        add_fitting(fitting, rules->sets[i], algorithm, kid);
        all_known &= rules->sets[i] != NULL;
    }
    if (fitting->count == 1 || (fitting->count > 1 && kid))
        return JWT_GOOD;
    if (fitting->count == 0 && !all_known)
        return JWT_NO_KEYS;
    return fitting->of_kid > 0 && fitting->count == 0 ? JWT_WRONG_ALGORITHM : JWT_UNKNOWN_KEY;
}

static enum jwt_fault read_header(const struct jwt_rules *rules, struct slice part,
                                  struct fitting *fitting)
{
    json_t *header = decode_header(part);
    const json_t *kid = json_object_get(header, "kid");
    const char *algorithm = jwt_member(header, "alg");
    enum jwt_fault fault = JWT_MALFORMED;

    /* weir understands no extension (RFC 7515 section 4.1.11) */
    if (algorithm && !json_object_get(header, "crit") && (!kid || json_is_string(kid)))
        fault = choose_keys(rules, algorithm, json_string_value(kid), fitting);
    json_decref(header);
    return fault;
}

/* --- Signatures --- */

static bool verify_hmac(const struct jwt_key *key, struct slice input,
                        const unsigned char *signature, size_t size)
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned digest_size = 0;

    return size == DIGEST &&
           HMAC(EVP_sha256(), key->secret, (int)key->secret_size, (const unsigned char *)input.p,
                input.n, digest, &digest_size) &&
           digest_size == DIGEST && CRYPTO_memcmp(digest, signature, DIGEST) == 0;
}

static bool verify_digest(const struct jwt_key *key, const EVP_MD *md, struct slice input,
                          const unsigned char *signature, size_t size)
{
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    bool good =
        context && EVP_DigestVerifyInit(context, NULL, md, NULL, key->pkey) == 1 &&
        EVP_DigestVerify(context, signature, size, (const unsigned char *)input.p, input.n) == 1;

    EVP_MD_CTX_free(context);
    ERR_clear_error();
    return good;
}

/* JWS has R and S in 32 bytes each (RFC 7518 section 3.4); OpenSSL wants DER. */
static bool verify_ecdsa(const struct jwt_key *key, struct slice input,
                         const unsigned char *signature, size_t size)
{
    unsigned char der[DER_MAX], *end = der;
    ECDSA_SIG *pair = size == 2 * HALF ? ECDSA_SIG_new() : NULL;
    BIGNUM *r = pair ? BN_bin2bn(signature, HALF, NULL) : NULL;
    BIGNUM *s = pair ? BN_bin2bn(signature + HALF, HALF, NULL) : NULL;
    bool good = false;

    if (r && s && ECDSA_SIG_set0(pair, r, s) == 1) {
        r = s = NULL; /* now of `pair` */
        int der_size = i2d_ECDSA_SIG(pair, NULL);
        good = der_size > 0 && der_size <= DER_MAX && i2d_ECDSA_SIG(pair, &end) == der_size &&
               verify_digest(key, EVP_sha256(), input, der, (size_t)der_size);
    }
    BN_free(r);
    BN_free(s);
    ECDSA_SIG_free(pair);
    return good;
}

static bool verify_signature(const struct jwt_key *key, const struct token_parts *parts)
{
    unsigned char signature[1024]; /* RSA with 8192 bits */
    size_t size;

    if (!base64url_decode(parts->signature, signature, sizeof signature, &size))
        return false;
    switch (key->algorithm) {
    case JWT_HS256: return verify_hmac(key, parts->input, signature, size);
    case JWT_RS256: return verify_digest(key, EVP_sha256(), parts->input, signature, size);
    case JWT_ES256: return verify_ecdsa(key, parts->input, signature, size);
    case JWT_EDDSA: return verify_digest(key, NULL, parts->input, signature, size);
    case JWT_ALGORITHM_COUNT: break;
    }
    return false;
}

/* --- Claims --- */

/* RFC 8259 allows numbers of any size (section 6) and unpaired surrogates (section 8.2), which
 * jansson refuses. A claim that weir does not use may contain them. Before it parses, a number out
 * of range becomes one that is no client's, and a surrogate becomes U+0000, which is in no client's
 * name either. */

/* Replaces the number at `p` if it is out of range. Returns its end. */
static char *replace_number(char *p)
{
    static const char too_large[] = "-9e99"; /* no longer than any number out of range */
    size_t n = strspn(p, "+-.0123456789eE");
    const char *digits = p + (*p == '-'), *point = memchr(p, '.', n);
    bool is_integer = !point && !memchr(p, 'e', n) && !memchr(p, 'E', n);
    char *end;

    /* strtod() takes more than JSON: -.5, 007 and 1.e5 */
    if (!char_is(digits[0], CHAR_DIGIT) || (digits[0] == '0' && char_is(digits[1], CHAR_DIGIT)) ||
        (point && !char_is(point[1], CHAR_DIGIT)))
        return p + n;
    errno = 0;
    double real = strtod(p, &end);
    if (is_integer)
        (void)strtoll(p, &end, 10);
    if (end == p + n && errno == ERANGE && (is_integer || isinf(real))) {
        memset(p, ' ', n);
        memcpy(p, too_large + (digits == p), sizeof too_large - 1 - (digits == p));
    }
    return p + n;
}

/* Returns the code unit of the escape \uXXXX at `p`; 0: there is none. */
static unsigned escaped_unit(const char *p)
{
    unsigned unit = 0;

    if (p[0] != '\\' || p[1] != 'u')
        return 0;
    for (unsigned i = 2; i < 6; i++) {
        if (!char_is(p[i], CHAR_HEX))
            return 0;
        unit = unit << 4 | char_hex_value(p[i]);
    }
    return unit;
}

/* Replaces the unpaired surrogates of the text at `p`. Returns its end, after the quote. */
static char *replace_surrogates(char *p)
{
    for (p++; *p && *p != '"';) {
        unsigned kind = escaped_unit(p) & 0xfc00;
        if (kind == 0xd800 && (escaped_unit(p + 6) & 0xfc00) == 0xdc00)
            p += 12;
        else if (kind == 0xd800 || kind == 0xdc00)
            memset(p + 2, '0', 4);
        else
            p += *p == '\\' && p[1] ? 2 : 1;
    }
    return p + (*p == '"');
}

static json_t *decode_claims(struct slice part)
{
    char bytes[JWT_TOKEN_MAX];
    json_error_t error;
    size_t size;

    if (!base64url_decode(part, (unsigned char *)bytes, sizeof bytes - 1, &size))
        return NULL;
    bytes[size] = 0; /* ends the searches */
    for (char *p = bytes; p < bytes + size;)
        p = *p == '"'                              ? replace_surrogates(p)
            : *p == '-' || char_is(*p, CHAR_DIGIT) ? replace_number(p)
                                                   : p + 1;
    return jwt_parse_object(bytes, size, JSON_ALLOW_NUL, &error);
}

/* Returns whether a claim is this text. One with U+0000 is none. */
static bool is_text(const json_t *claim, const char *text)
{
    return slice_equal((struct slice){json_string_value(claim), json_string_length(claim)},
                       slice_of(text));
}

/* Reads a NumericDate (RFC 7519 section 2) into whole seconds; a fraction is rounded up or down. A
 * missing date leaves `*seconds`. */
static bool read_date(const json_t *claims, const char *name, bool up, int64_t *seconds)
{
    const double most = 1e15; /* beyond all dates, exact as a double */
    const json_t *date = json_object_get(claims, name);

    if (!date)
        return true;
    if (!json_is_number(date))
        return false;
    double value = json_number_value(date);
    value = value > most ? most : value < -most ? -most : value;
    *seconds = (int64_t)value; /* rounded towards zero */
    if (up)
        *seconds += (double)*seconds < value;
    else
        *seconds -= (double)*seconds > value;
    return true;
}

static bool audience_holds(const json_t *claims, const char *audience)
{
    const json_t *aud = json_object_get(claims, "aud"), *one;
    size_t i;

    json_array_foreach(aud, i, one) if (is_text(one, audience)) return true;
    return is_text(aud, audience);
}

static enum jwt_fault check_claims(const struct jwt_rules *rules, int64_t now_s,
                                   struct jwt_token *token)
{
    const json_t *claims = token->claims;

    token->from_s = INT64_MIN;
    token->until_s = INT64_MAX;
    if (!read_date(claims, "nbf", true, &token->from_s) ||
        !read_date(claims, "exp", false, &token->until_s))
        return JWT_BAD_CLAIMS;
    if (rules->require_exp && token->until_s == INT64_MAX)
        return JWT_NO_EXPIRY;
    if (token->from_s != INT64_MIN)
        token->from_s -= rules->leeway_s;
    if (token->until_s != INT64_MAX)
        token->until_s += rules->leeway_s;
    if (now_s >= token->until_s)
        return JWT_EXPIRED;
    if (now_s < token->from_s)
        return JWT_NOT_YET_VALID;
    if (rules->issuer && !is_text(json_object_get(claims, "iss"), rules->issuer))
        return JWT_WRONG_ISSUER;
    if (rules->audience && !audience_holds(claims, rules->audience))
        return JWT_WRONG_AUDIENCE;
    return JWT_GOOD;
}

enum jwt_fault jwt_find_key(const struct jwt_rules *rules, struct slice text)
{
    struct fitting fitting = {.count = 0};
    struct token_parts parts;

    if (text.n > JWT_TOKEN_MAX || !split_token(text, &parts))
        return JWT_MALFORMED;
    return read_header(rules, parts.header, &fitting);
}

enum jwt_fault jwt_verify(const struct jwt_rules *rules, struct slice text, int64_t now_s,
                          struct jwt_token *token)
{
    struct fitting fitting = {.count = 0};
    struct token_parts parts;
    bool good = false;

    token->claims = NULL;
    if (text.n > JWT_TOKEN_MAX || !split_token(text, &parts))
        return JWT_MALFORMED;
    enum jwt_fault fault = read_header(rules, parts.header, &fitting);
    if (fault != JWT_GOOD)
        return fault;
    for (unsigned i = 0; i < fitting.count && !good; i++)
        good = verify_signature(fitting.at[i], &parts);
    if (!good)
        return JWT_BAD_SIGNATURE;
    token->claims = decode_claims(parts.payload);
    fault = token->claims ? check_claims(rules, now_s, token) : JWT_BAD_CLAIMS;
    if (fault != JWT_GOOD)
        jwt_token_free(token);
    return fault;
}

void jwt_token_free(struct jwt_token *token)
{
    json_decref(token->claims);
    token->claims = NULL;
}

struct slice jwt_claim(const struct jwt_token *token, const char *name,
                       char room[static JWT_NUMBER_MAX])
{
    const double exact = 9007199254740992; /* 2^53 */
    const json_t *claim = json_object_get(token->claims, name);
    struct slice value = {json_string_value(claim), json_string_length(claim)};
    double real = json_real_value(claim);

    if (json_is_integer(claim))
        value = (struct slice){room, (size_t)snprintf(room, JWT_NUMBER_MAX, "%" JSON_INTEGER_FORMAT,
                                                      json_integer_value(claim))};
    else if (json_is_real(claim) && real > -exact && real < exact && (double)(int64_t)real == real)
        value = (struct slice){room, (size_t)snprintf(room, JWT_NUMBER_MAX, "%.0f", real)};
    return value.n && !slice_has_control_bytes(value) ? value : SLICE_NONE;
}
