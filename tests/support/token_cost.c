/* token_cost.c - measures the CPU time of identifying a client by each source, for docs/performance.md:
 * a token verified for the first time, and one that was verified before.
 *
 *   token_cost          the time of each
 *   token_cost WHAT     a few rounds of WHAT, such as "ES256, first", and their number: for bench/tokens */
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "config/policy_file.h"
#include "policy/identity.h"
#include "policy/identity_token.h"

enum { TOKEN_MAX_BYTES = 4096, TOKENS = 200, COUNTED = 11 * TOKENS };

#define SECRET "a secret of 32 bytes and of some more"

static const char *only; /* NULL: all measurements */

static void die(const char *what)
{
    fprintf(stderr, "token_cost: %s\n", what);
    exit(1);
}

/* --- a token and its key --- */

static size_t encode(char *out, const unsigned char *bytes, size_t n)
{
    size_t size = (size_t)EVP_EncodeBlock((unsigned char *)out, bytes, (int)n);

    while (size && out[size - 1] == '=')
        size--;
    for (size_t i = 0; i < size; i++)
        out[i] = out[i] == '+' ? '-' : out[i] == '/' ? '_' : out[i];
    out[size] = 0;
    return size;
}

static const char *member(EVP_PKEY *pkey, const char *name)
{
    static char text[4][1024];
    static unsigned next;
    unsigned char bytes[512];
    BIGNUM *number = NULL;
    char *out = text[next++ % 4];

    if (!EVP_PKEY_get_bn_param(pkey, name, &number))
        die(name);
    int size = BN_num_bytes(number);
    if (name[0] == 'q') /* a coordinate */
        BN_bn2binpad(number, bytes, size = 32);
    else
        BN_bn2bin(number, bytes);
    BN_free(number);
    encode(out, bytes, (size_t)size);
    return out;
}

static EVP_PKEY *key_of(const char *algorithm, const char *file)
{
    if (strcmp(algorithm, "HS256") == 0)
        return EVP_PKEY_new_mac_key(EVP_PKEY_HMAC, NULL, (const unsigned char *)SECRET,
                                    (int)strlen(SECRET));
    EVP_PKEY *pkey = strcmp(algorithm, "RS256") == 0   ? EVP_RSA_gen(2048)
                     : strcmp(algorithm, "ES256") == 0 ? EVP_EC_gen("P-256")
                                                       : EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
    FILE *out = fopen(file, "w");
    unsigned char raw[32];
    size_t size = sizeof raw;
    char x[64];

    if (!pkey || !out)
        die("cannot make a key");
    if (strcmp(algorithm, "RS256") == 0) {
        fprintf(out, "{\"keys\":[{\"kty\":\"RSA\",\"n\":\"%s\",\"e\":\"AQAB\"}]}",
                member(pkey, "n"));
    } else if (strcmp(algorithm, "ES256") == 0) {
        fprintf(out, "{\"keys\":[{\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"%s\",\"y\":\"%s\"}]}",
                member(pkey, "qx"), member(pkey, "qy"));
    } else {
        EVP_PKEY_get_raw_public_key(pkey, raw, &size);
        encode(x, raw, size);
        fprintf(out, "{\"keys\":[{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"x\":\"%s\"}]}", x);
    }
    fclose(out);
    return pkey;
}

/* ES256: R and S of the DER signature, in 32 bytes each. */
static size_t without_der(unsigned char *signature, size_t size)
{
    const unsigned char *p = signature;
    unsigned char plain[64];
    ECDSA_SIG *pair = d2i_ECDSA_SIG(NULL, &p, (long)size);

    BN_bn2binpad(ECDSA_SIG_get0_r(pair), plain, 32);
    BN_bn2binpad(ECDSA_SIG_get0_s(pair), plain + 32, 32);
    memcpy(signature, plain, sizeof plain);
    ECDSA_SIG_free(pair);
    return sizeof plain;
}

/* A token as issuers make them, of about 600 to 900 bytes. */
static void sign(EVP_PKEY *pkey, const char *algorithm, unsigned number,
                 char token[static TOKEN_MAX_BYTES])
{
    char header[128], payload[512];
    unsigned char signature[512];
    size_t size = sizeof signature;
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    const EVP_MD *md = strcmp(algorithm, "EdDSA") == 0 ? NULL : EVP_sha256();

    snprintf(header, sizeof header, "{\"alg\":\"%s\",\"typ\":\"JWT\"}", algorithm);
    snprintf(
        payload, sizeof payload,
        "{\"iss\":\"https://id.example.com/realms/"
        "shop\",\"aud\":[\"api\",\"account\"],\"exp\":4102444800,"
        "\"iat\":1700000000,\"jti\":\"6f9ad2c0-0f4c-4c42-a6a5-%012u\",\"sub\":\"2f0d1f8e-53b4-4c8a-"
        "%04u\","
        "\"azp\":\"web\",\"scope\":\"openid profile email orders:read orders:write\","
        "\"email\":\"someone@example.com\",\"preferred_username\":\"someone\",\"session_state\":"
        "\"0b0dcf54-2c7f-4d3a-9c1c-9a1d3f0f5f11\"}",
        number, number % 10000);
    size_t n = encode(token, (const unsigned char *)header, strlen(header));
    token[n++] = '.';
    n += encode(token + n, (const unsigned char *)payload, strlen(payload));
    if (EVP_DigestSignInit(context, NULL, md, NULL, pkey) != 1 ||
        EVP_DigestSign(context, signature, &size, (const unsigned char *)token, n) != 1)
        die("cannot sign");
    EVP_MD_CTX_free(context);
    if (strcmp(algorithm, "ES256") == 0)
        size = without_der(signature, size);
    token[n++] = '.';
    encode(token + n, signature, size);
}

/* --- measuring --- */

static struct token_stats stats;

static struct policy *load(const char *identity)
{
    char yaml[2048];

    snprintf(yaml, sizeof yaml, "upstreams: { a: { servers: 127.0.0.1:1 } }\nidentity: { %s }\n",
             identity);
    struct policy *policy = policy_load_text("token_cost.yaml", slice_of(yaml), "lua", stderr);
    if (!policy)
        die("the policy is refused");
    return policy;
}

/* A browser's request has some ten other fields. */
static void add_fields(struct fields *fields)
{
    static const char *const others[] = {
        "Host",         "User-Agent", "Accept",         "Accept-Language", "Accept-Encoding",
        "Referer",      "Origin",     "Sec-Fetch-Dest", "Sec-Fetch-Mode",  "Sec-Fetch-Site",
        "Cache-Control"};
    for (unsigned i = 0; i < COUNT_OF(others); i++)
        fields->at[fields->count++] =
            (struct field){.name = slice_of(others[i]), .value = SLICE("value")};
}

/* bench/tokens counts what this function executes. */
__attribute__((noinline)) static void identify(const struct identity_input *input,
                                               const char *prefix)
{
    struct identity identity;
    const char *why;

    if (!identity_of(input, &identity, &why) ||
        !slice_starts_with(identity_text(&identity), slice_of(prefix)))
        die("not identified");
}

/* Prints the time of one identification in microseconds; the `values` are used in rotation. */
static void measure(const char *what, const struct policy *policy, struct token_checker *tokens,
                    const char *name, char *const *values, unsigned count, unsigned rounds,
                    const char *prefix)
{
    const struct peer source = {.has_ip = true};
    static struct fields fields;
    struct identity_input input = {
        .policy = policy, .peer = {.source = &source}, .fields = &fields, .tokens = tokens};

    if (only && strcmp(only, what) != 0)
        return;
    fields.count = 0;
    add_fields(&fields);
    struct field *field = &fields.at[fields.count++];
    if (only)
        rounds = rounds < COUNTED ? rounds : COUNTED;
    uint64_t start = clock_us();
    for (unsigned i = 0; i < rounds; i++) {
        *field = (struct field){.name = slice_of(name), .value = slice_of(values[i % count])};
        input.query = name[0] == '?' ? field->value : SLICE_NONE;
        identify(&input, prefix);
    }
    if (only)
        printf("%u\n", rounds);
    else
        printf("%-28s %8.2f us\n", what, (double)(clock_us() - start) / rounds);
}

static void measure_algorithm(const char *algorithm, const char *file)
{
    char identity[512], line[64], *values[TOKENS];
    EVP_PKEY *pkey = key_of(algorithm, file);
    struct token_checker *tokens;

    for (unsigned i = 0; i < TOKENS; i++) {
        values[i] = malloc(TOKEN_MAX_BYTES);
        strcpy(values[i], "Bearer ");
        sign(pkey, algorithm, i, values[i] + 7);
    }
    if (strcmp(algorithm, "HS256") == 0)
        snprintf(identity, sizeof identity,
                 "from: [ 'jwt:sub', ip ], jwt: { audience: api, secret: '%s' }", SECRET);
    else
        snprintf(identity, sizeof identity,
                 "from: [ 'jwt:sub', ip ], jwt: { audience: api, keys: '%s' }", file);
    struct policy *policy = load(identity);
    if (!token_checker_new(policy, &stats, &tokens))
        die("no memory");
    snprintf(line, sizeof line, "%s, first", algorithm);
    measure(line, policy, tokens, "Authorization", values, TOKENS, TOKENS, "jwt:");
    snprintf(line, sizeof line, "%s, repeated", algorithm);
    measure(line, policy, tokens, "Authorization", values, TOKENS, 1000000, "jwt:");
    token_checker_free(tokens);
    policy_drop(policy);
    EVP_PKEY_free(pkey);
    for (unsigned i = 0; i < TOKENS; i++)
        free(values[i]);
}

static void measure_source(const char *what, const char *identity, const char *name,
                           const char *value, const char *prefix)
{
    struct policy *policy = load(identity);
    measure(what, policy, NULL, name, (char *const[]){(char *)value}, 1, 1000000, prefix);
    policy_drop(policy);
}

int main(int argc, char **argv)
{
    char file[] = "/tmp/token_cost-XXXXXX";
    int fd = mkstemp(file);

    if (fd < 0)
        die(file);
    close(fd);
    only = argc > 1 ? argv[1] : NULL;
    measure_source("address", "from: [ ip ]", "X-Client-Id", "", "ip:");
    measure_source("header", "from: [ 'header:X-Key' ], headers_from: anyone", "X-Key", "client-2",
                   "id:");
    measure_source("header, hashed", "from: [ 'header:X-Key' ], headers_from: anyone, hash: true",
                   "X-Key", "pk_live_4eC39HqLyjWDarjtT1zdp7dc", "id:h:");
    measure_source("cookie", "from: [ 'cookie:session' ], headers_from: anyone", "Cookie",
                   "theme=dark; session=f3b1c9e0a7d24b6f8e5d1c2b3a495867", "cookie:");
    measure_source("query parameter", "from: [ 'query:key' ], headers_from: anyone", "?",
                   "?page=2&key=f3b1c9e0a7d24b6f8e5d1c2b3a495867", "query:");
    measure_algorithm("HS256", file);
    measure_algorithm("RS256", file);
    measure_algorithm("ES256", file);
    measure_algorithm("EdDSA", file);
    unlink(file);
    return 0;
}
