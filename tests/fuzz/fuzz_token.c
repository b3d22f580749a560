/* The input is a JWK set and a token, separated by a zero byte; without a zero byte it is a token,
 * verified with the keys of RFC 7515. Properties: no read past the end of either; a valid token
 * without its last byte is invalid; the result does not depend on what was verified before. */
#include "fuzz.h"
#include "policy/jwt_internal.h"

static const char known[] =
    "{\"keys\":[{\"kty\":\"oct\",\"k\":\"AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-"
    "1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAz"
    "Zr1Z9CAow\"},{\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":"
    "\"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU\","
    "\"y\":"
    "\"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0\"},{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"x\":"
    "\"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo\"}]}";

static enum jwt_fault verify(const struct jwt_keys *keys, const uint8_t *data, size_t size)
{
    const struct jwt_rules rules = {.sets = {keys}, .set_count = 1, .leeway_s = 1};
    char *bytes = fuzz_copy(data, size), number[JWT_NUMBER_MAX];
    struct jwt_token token;
    enum jwt_fault fault = jwt_verify(&rules, (struct slice){bytes, size}, 1300819379, &token);

    PROPERTY(fault < JWT_FAULT_COUNT);
    if (fault == JWT_GOOD) {
        PROPERTY(token.from_s <= 1300819379 && token.until_s > 1300819379);
        struct slice claim = jwt_claim(&token, "iss", number);
        PROPERTY(!slice_has_control_bytes(claim));
        jwt_token_free(&token);
    }
    free(bytes);
    return fault;
}

/* Whether the set can have so many keys. OpenSSL tests an RSA modulus with random numbers: it takes
 * one with a small factor at one time and refuses it at another. */
static bool can_have(struct slice set, unsigned count)
{
    bool has = false;

    for (unsigned i = 0; i < 16 && !has; i++) {
        struct jwt_keys *keys = jwt_keys_new();
        struct jwt_set_report report;
        has = jwt_keys_add_set(keys, set, JWT_SET_PRIVATE, &report) && keys->count >= count;
        jwt_keys_drop(keys);
    }
    return has;
}

/* A set of a URL has no more keys, and no secret: HS256 tokens are never valid. */
static void check_public_set(struct slice set, bool good, unsigned count)
{
    struct jwt_keys *keys = jwt_keys_new();
    const struct jwt_rules rules = {.sets = {keys}, .set_count = 1};
    struct jwt_set_report report;

    bool public_good = jwt_keys_add_set(keys, set, JWT_SET_PUBLIC, &report);
    PROPERTY(public_good || report.why[0]);
    PROPERTY(public_good || !good);
    PROPERTY(!good || keys->count <= count || can_have(set, keys->count));
    PROPERTY(jwt_find_key(&rules, SLICE("eyJhbGciOiJIUzI1NiJ9.e30.AA")) != JWT_GOOD);
    jwt_keys_drop(keys);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *zero = size ? memchr(data, 0, size) : NULL;
    struct slice set =
        zero ? (struct slice){(const char *)data, (size_t)(zero - data)} : SLICE(known);
    const uint8_t *token = zero ? zero + 1 : data;
    size_t token_size = (size_t)(data + size - token);
    struct jwt_keys *keys = jwt_keys_new();
    struct jwt_set_report report;

    char *bytes = fuzz_copy((const uint8_t *)set.p, set.n);
    bool good = jwt_keys_add_set(keys, (struct slice){bytes, set.n}, JWT_SET_PRIVATE, &report);
    PROPERTY(good || report.why[0]);
    check_public_set((struct slice){bytes, set.n}, good, keys->count);
    free(bytes);
    enum jwt_fault fault = verify(keys, token, token_size);
    PROPERTY(verify(keys, token, token_size) == fault);
    if (fault == JWT_GOOD)
        PROPERTY(verify(keys, token, token_size - 1) != JWT_GOOD);
    jwt_keys_drop(keys);
    return 0;
}
