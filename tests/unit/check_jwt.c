/* check_jwt.c - tokens: the vectors of RFC 7515 appendix A and RFC 8037 appendix A, keys and their
 * algorithms, claims, malformed tokens, and the cache. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/hmac.h"
#include "base/text.h"
#include "policy/base64url.h"
#include "policy/jwt.h"
#include "policy/token_cache.h"
#include "run_suite.h"

#define SECRET "0123456789abcdef0123456789abcdef"

static struct jwt_keys *keys;
static struct jwt_set_report report;

static struct jwt_keys *keys_of(const char *json)
{
    struct jwt_keys *made = jwt_keys_new();
    ck_assert_msg(jwt_keys_add_set(made, slice_of(json), JWT_SET_PRIVATE, &report), "%s",
                  report.why);
    return made;
}

/* --- published vectors --- */

static char *file_text(const char *name)
{
    const char *srcdir = getenv("srcdir");
    static char path[4096], text[1 << 16];

    snprintf(path, sizeof path, "%s/tests/jwt/%s", srcdir ? srcdir : ".", name);
    FILE *file = fopen(path, "r");
    ck_assert_ptr_nonnull(file);
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    return text;
}

#define JOE                                                                                        \
    "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVl" \
    "fQ"

static const struct vector {
    const char *input, *signature;
    enum jwt_fault fault;
} vectors[] = {
    /* RFC 7515 appendix A.1 to A.3 */
    {"eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9." JOE, "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk",
     JWT_GOOD},
    {"eyJhbGciOiJSUzI1NiJ9." JOE,
     "cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_"
     "O8W2Fp5jujGbds9uJ"
     "dbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_"
     "nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN"
     "9383LcOLn6_dO--xi12jzDwusC-"
     "eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXL"
     "IhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw",
     JWT_GOOD},
    {"eyJhbGciOiJFUzI1NiJ9." JOE,
     "DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q",
     JWT_GOOD},
    /* RFC 8037 appendix A.4: the signature is valid, the payload is not JSON */
    {"eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc",
     "hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg",
     JWT_BAD_CLAIMS},
};

static enum jwt_fault verify_at(const char *input, const char *signature, int64_t now_s)
{
    struct jwt_rules rules = {.sets = {keys}, .set_count = 1};
    char text[2048];
    struct jwt_token token;

    snprintf(text, sizeof text, "%s.%s", input, signature);
    enum jwt_fault fault = jwt_verify(&rules, slice_of(text), now_s, &token);
    if (fault == JWT_GOOD)
        jwt_token_free(&token);
    return fault;
}

START_TEST(published_tokens_are_verified)
{
    const struct vector *vector = &vectors[_i];
    char signature[1024];

    keys = keys_of(file_text("rfc.json"));
    ck_assert_uint_eq(report.usable, 4);
    ck_assert_int_eq(verify_at(vector->input, vector->signature, 1300819379), vector->fault);
    if (vector->fault == JWT_GOOD)
        ck_assert_int_eq(verify_at(vector->input, vector->signature, 1300819380), JWT_EXPIRED);
    for (size_t i = 0; i < strlen(vector->signature); i += 7) {
        strcpy(signature, vector->signature);
        signature[i] = signature[i] == 'A' ? 'B' : 'A';
        ck_assert_msg(verify_at(vector->input, signature, 0) == JWT_BAD_SIGNATURE, "%s", signature);
        signature[i] = 0;
        ck_assert_int_eq(verify_at(vector->input, signature, 0), JWT_BAD_SIGNATURE);
    }
    jwt_keys_drop(keys);
}
END_TEST

START_TEST(unsecured_tokens_are_invalid) /* RFC 7515 appendix A.5 */
{
    keys = keys_of(file_text("rfc.json"));
    ck_assert_int_eq(verify_at("eyJhbGciOiJub25lIn0." JOE, "", 0), JWT_WRONG_ALGORITHM);
    jwt_keys_drop(keys);
}
END_TEST

/* --- tokens signed here with HS256 --- */

static void encode(struct text *out, struct slice bytes)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    unsigned bits = 0, count = 0;

    for (size_t i = 0; i < bytes.n; i++) {
        bits = (bits << 8 | (unsigned char)bytes.p[i]) & 0xffff;
        for (count += 8; count >= 6; count -= 6)
            text_char(out, digits[bits >> (count - 6) & 63]);
    }
    if (count)
        text_char(out, digits[bits << (6 - count) & 63]);
}

static char made[65536];

static struct slice make(const char *header, const char *payload)
{
    struct text out = text_over(made, sizeof made);
    unsigned char digest[HMAC_SIZE];
    struct hmac_key key;

    encode(&out, slice_of(header));
    text_char(&out, '.');
    encode(&out, slice_of(payload));
    hmac_key_init(&key, SLICE(SECRET));
    SHA256_CTX hash = hmac_begin(&key);
    hmac_add(&hash, text_slice(&out));
    hmac_end(&key, &hash, digest);
    text_char(&out, '.');
    encode(&out, (struct slice){(const char *)digest, sizeof digest});
    ck_assert(!out.failed);
    return text_slice(&out);
}

#define HS256 "{\"alg\":\"HS256\"}"

static struct jwt_keys *secret_key(void)
{
    struct jwt_keys *one = jwt_keys_new();
    jwt_keys_add_secret(one, SLICE(SECRET));
    return one;
}

static enum jwt_fault check(const struct jwt_rules *rules, const char *header, const char *payload,
                            int64_t now_s)
{
    struct jwt_token token;
    enum jwt_fault fault = jwt_verify(rules, make(header, payload), now_s, &token);

    if (fault == JWT_GOOD)
        jwt_token_free(&token);
    return fault;
}

START_TEST(the_key_determines_the_algorithm)
{
    struct jwt_rules rules = {.sets = {keys_of(file_text("rfc.json"))}, .set_count = 1};
    static const char *const headers[] = {"{\"alg\":\"none\"}",  "{\"alg\":\"HS512\"}",
                                          "{\"alg\":\"hs256\"}", "{\"alg\":\"RS512\"}",
                                          "{\"alg\":\"PS256\"}", "{\"alg\":\"\"}"};

    for (unsigned i = 0; i < COUNT_OF(headers); i++)
        ck_assert_int_eq(check(&rules, headers[i], "{}", 0), JWT_WRONG_ALGORITHM);
    ck_assert_int_eq(check(&rules, "{\"alg\":\"RS256\"}", "{}", 0), JWT_BAD_SIGNATURE);
    jwt_keys_drop((struct jwt_keys *)rules.sets[0]);
    /* public keys never verify an HMAC (RFC 8725 section 2.1) */
    rules.sets[0] = keys_of("{\"keys\":[{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"kid\":\"a\","
                            "\"x\":\"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo\"}]}");
    ck_assert_int_eq(check(&rules, "{\"alg\":\"HS256\",\"kid\":\"a\"}", "{}", 0),
                     JWT_WRONG_ALGORITHM);
    ck_assert_int_eq(check(&rules, HS256, "{}", 0), JWT_WRONG_ALGORITHM);
    jwt_keys_drop((struct jwt_keys *)rules.sets[0]);
}
END_TEST

#define K "\"k\":\"MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY\"" /* SECRET */

START_TEST(keys_are_found_by_kid)
{
    struct jwt_rules rules = {
        .sets = {keys_of("{\"keys\":[{\"kty\":\"oct\",\"kid\":\"a\"," K "}]}")}, .set_count = 1};

    ck_assert_int_eq(check(&rules, "{\"alg\":\"HS256\",\"kid\":\"a\"}", "{}", 0), JWT_GOOD);
    ck_assert_int_eq(check(&rules, "{\"alg\":\"HS256\",\"kid\":\"b\"}", "{}", 0), JWT_UNKNOWN_KEY);
    ck_assert_int_eq(check(&rules, "{\"alg\":\"HS256\",\"kid\":\"\"}", "{}", 0), JWT_UNKNOWN_KEY);
    ck_assert_int_eq(check(&rules, "{\"alg\":\"HS256\",\"kid\":7}", "{}", 0), JWT_MALFORMED);
    ck_assert_int_eq(check(&rules, HS256, "{}", 0), JWT_GOOD); /* the only one */
    jwt_keys_drop((struct jwt_keys *)rules.sets[0]);
    rules.sets[0] = keys_of("{\"keys\":[{\"kty\":\"oct\",\"kid\":\"a\"," K
                            "},{\"kty\":\"oct\",\"kid\":\"b\"," K "}]}");
    ck_assert_int_eq(check(&rules, "{\"alg\":\"HS256\",\"kid\":\"b\"}", "{}", 0), JWT_GOOD);
    ck_assert_int_eq(check(&rules, HS256, "{}", 0), JWT_UNKNOWN_KEY);
    jwt_keys_drop((struct jwt_keys *)rules.sets[0]);
    rules.sets[0] = secret_key();
    ck_assert_int_eq(check(&rules, "{\"alg\":\"HS256\",\"kid\":\"a\"}", "{}", 0), JWT_UNKNOWN_KEY);
    jwt_keys_drop((struct jwt_keys *)rules.sets[0]);
    rules.sets[0] = keys_of("{\"keys\":[{\"kty\":\"oct\",\"kid\":\"a\",\"k\":\""
                            "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\"}]}");
    for (rules.set_count = 1; rules.set_count < JWT_SETS_MAX; rules.set_count++)
        rules.sets[rules.set_count] = rules.sets[0];
    ck_assert_int_eq(check(&rules, "{\"alg\":\"HS256\",\"kid\":\"a\"}", "{}", 0),
                     JWT_BAD_SIGNATURE);
    rules.sets[JWT_SETS_MAX - 1] = keys_of("{\"keys\":[{\"kty\":\"oct\",\"kid\":\"a\"," K "}]}");
    ck_assert_int_eq(check(&rules, "{\"alg\":\"HS256\",\"kid\":\"a\"}", "{}", 0), JWT_GOOD);
    ck_assert_int_eq(check(&rules, HS256, "{}", 0), JWT_UNKNOWN_KEY);
    jwt_keys_drop((struct jwt_keys *)rules.sets[0]);
    jwt_keys_drop((struct jwt_keys *)rules.sets[JWT_SETS_MAX - 1]);
}
END_TEST

START_TEST(keys_that_cannot_verify_are_skipped)
{
    static const struct {
        const char *jwk, *why;
    } skipped[] = {
        {"{\"kty\":\"oct\",\"k\":\"AAAA\"}", "key 1 is a secret of less than 32 bytes"},
        {"{\"kty\":\"oct\",\"alg\":\"HS512\"," K "}", "has an alg other than"},
        {"{\"kty\":\"oct\",\"use\":\"enc\"," K "}", "is not for signatures"},
        {"{\"kty\":\"oct\",\"key_ops\":[\"sign\"]," K "}", "is not for signatures"},
        {"{\"kty\":\"oct\",\"kid\":1," K "}", "has a kid that is no text"},
        {"{\"kty\":\"RSA\",\"e\":\"AQAB\",\"n\":\"ofgWCuLjybRlzo0t\"}",
         "RSA key of less than 2048"},
        {"{\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU\","
         "\"y\":\"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a1\"}",
         "key 1 "}, /* y is not base64url: bits at its end */
        {"{\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU\","
         "\"y\":\"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU\"}",
         "is no point on P-256"},
        {"{\"kty\":\"EC\",\"crv\":\"P-384\"}", "another curve"},
        {"{\"kty\":\"OKP\",\"crv\":\"X25519\"}", "another curve"},
        {"{\"kty\":\"dsa\"}", "has a kty other than"},
        {"7", "is no object"},
    };
    char json[1024];

    for (unsigned i = 0; i < COUNT_OF(skipped); i++) {
        snprintf(json, sizeof json, "{\"keys\":[%s]}", skipped[i].jwk);
        jwt_keys_drop(keys_of(json));
        ck_assert_msg(report.usable == 0 && report.skipped == 1 &&
                          strstr(report.why, skipped[i].why),
                      "%s: %s", json, report.why);
    }
}
END_TEST

START_TEST(malformed_key_sets_are_refused)
{
    static const char *const bad[] = {"",
                                      "[]",
                                      "{",
                                      "{}",
                                      "{\"keys\":{}}",
                                      "{\"keys\":[],\"keys\":[]}",
                                      "{\"keys\":[{\"kty\":\"oct\",\"kid\":\"a\"," K
                                      "},{\"kty\":\"oct\",\"kid\":\"a\"," K "}]}"};

    for (unsigned i = 0; i < COUNT_OF(bad); i++) {
        struct jwt_keys *none = jwt_keys_new();
        ck_assert_msg(!jwt_keys_add_set(none, slice_of(bad[i]), JWT_SET_PRIVATE, &report), "%s",
                      bad[i]);
        ck_assert_str_ne(report.why, "");
        jwt_keys_drop(none);
    }
}
END_TEST

/* --- claims --- */

START_TEST(dates_issuer_and_audience_are_checked)
{
    struct jwt_rules rules = {.sets = {secret_key()}, .set_count = 1};

    ck_assert_int_eq(check(&rules, HS256, "{\"exp\":100}", 99), JWT_GOOD);
    ck_assert_int_eq(check(&rules, HS256, "{\"exp\":100}", 100), JWT_EXPIRED);
    ck_assert_int_eq(check(&rules, HS256, "{\"exp\":100.9}", 100), JWT_EXPIRED);
    ck_assert_int_eq(check(&rules, HS256, "{\"nbf\":100.1}", 100), JWT_NOT_YET_VALID);
    ck_assert_int_eq(check(&rules, HS256, "{\"nbf\":100}", 100), JWT_GOOD);
    ck_assert_int_eq(check(&rules, HS256, "{\"exp\":-1e300}", 0), JWT_EXPIRED);
    ck_assert_int_eq(check(&rules, HS256, "{\"exp\":1e300}", 100), JWT_GOOD);
    ck_assert_int_eq(check(&rules, HS256, "{\"exp\":\"100\"}", 99), JWT_BAD_CLAIMS);
    ck_assert_int_eq(check(&rules, HS256, "{\"nbf\":null}", 99), JWT_BAD_CLAIMS);
    ck_assert_int_eq(check(&rules, HS256, "{\"exp\":-1e400}", 0), JWT_EXPIRED);
    ck_assert_int_eq(check(&rules, HS256, "{\"exp\":99999999999999999999}", 100), JWT_GOOD);
    rules.leeway_s = 10;
    ck_assert_int_eq(check(&rules, HS256, "{\"exp\":100}", 109), JWT_GOOD);
    ck_assert_int_eq(check(&rules, HS256, "{\"exp\":100}", 110), JWT_EXPIRED);
    ck_assert_int_eq(check(&rules, HS256, "{\"nbf\":100}", 90), JWT_GOOD);
    rules.require_exp = true;
    ck_assert_int_eq(check(&rules, HS256, "{\"nbf\":100}", 90), JWT_NO_EXPIRY);
    rules = (struct jwt_rules){
        .sets = {rules.sets[0]}, .set_count = 1, .issuer = "https://a", .audience = "api"};
    ck_assert_int_eq(check(&rules, HS256, "{\"iss\":\"https://a\",\"aud\":\"api\"}", 0), JWT_GOOD);
    ck_assert_int_eq(check(&rules, HS256, "{\"iss\":\"https://a\",\"aud\":[\"x\",7,\"api\"]}", 0),
                     JWT_GOOD);
    ck_assert_int_eq(check(&rules, HS256, "{\"iss\":\"https://a/\",\"aud\":\"api\"}", 0),
                     JWT_WRONG_ISSUER);
    ck_assert_int_eq(check(&rules, HS256, "{\"aud\":\"api\"}", 0), JWT_WRONG_ISSUER);
    ck_assert_int_eq(check(&rules, HS256, "{\"iss\":\"https://a\",\"aud\":[\"apis\"]}", 0),
                     JWT_WRONG_AUDIENCE);
    ck_assert_int_eq(check(&rules, HS256, "{\"iss\":\"https://a\"}", 0), JWT_WRONG_AUDIENCE);
    ck_assert_int_eq(check(&rules, HS256, "{\"iss\":\"https://a\\u0000\",\"aud\":\"api\"}", 0),
                     JWT_WRONG_ISSUER);
    ck_assert_int_eq(check(&rules, HS256, "{\"iss\":\"https://a\",\"aud\":[\"api\\u0000x\"]}", 0),
                     JWT_WRONG_AUDIENCE);
    jwt_keys_drop((struct jwt_keys *)rules.sets[0]);
}
END_TEST

START_TEST(claims_are_strings_and_integers)
{
    static const struct {
        const char *json, *text;
    } claims[] = {{"\"alice\"", "alice"},
                  {"\"\\u00e9\"", "\xc3\xa9"},
                  {"42", "42"},
                  {"-9223372036854775808", "-9223372036854775808"},
                  {"42.0", "42"},
                  {"1e3", "1000"},
                  {"1.5", ""},
                  {"1e300", ""},
                  {"true", ""},
                  {"null", ""},
                  {"[\"alice\"]", ""},
                  {"{}", ""},
                  {"\"\"", ""},
                  {"\"a\\nb\"", ""},
                  {"9223372036854775807", "9223372036854775807"},
                  {"9223372036854775808", ""},
                  {"-9223372036854775809", ""},
                  {"12345678901234567890", ""},
                  {"1e400", ""},
                  {"-1.5E+400", ""},
                  {"[1e400,-1e400]", ""},
                  {"\"1e400\"", "1e400"},
                  {"\"a\\u0000b\"", ""},
                  {"\"a\\ud83d\"", ""},
                  {"\"a\\udc00\\ud83d\\ud83d\\ude00\"", ""},
                  {"\"\\ud83d\\uDE00\"", "\xf0\x9f\x98\x80"},
                  {"\"\\\\ud83d\"", "\\ud83d"},
                  {"\"\\\"\\\\\"", "\"\\"}};
    struct jwt_rules rules = {.sets = {secret_key()}, .set_count = 1};
    char payload[128], number[JWT_NUMBER_MAX];
    struct jwt_token token;

    for (unsigned i = 0; i < COUNT_OF(claims); i++) {
        snprintf(payload, sizeof payload, "{\"sub\":%s}", claims[i].json);
        ck_assert_msg(jwt_verify(&rules, make(HS256, payload), 0, &token) == JWT_GOOD, "%s",
                      claims[i].json);
        struct slice text = jwt_claim(&token, "sub", number);
        ck_assert_msg(slice_equal(text, slice_of(claims[i].text)), "%s: %.*s", claims[i].json,
                      SLICE_ARG(text));
        ck_assert_uint_eq(jwt_claim(&token, "other", number).n, 0);
        jwt_token_free(&token);
        snprintf(payload, sizeof payload, "{\"other\":%s,\"sub\":\"alice\"}", claims[i].json);
        ck_assert_int_eq(jwt_verify(&rules, make(HS256, payload), 0, &token), JWT_GOOD);
        ck_assert(slice_equal(jwt_claim(&token, "sub", number), SLICE("alice")));
        jwt_token_free(&token);
    }
    jwt_keys_drop((struct jwt_keys *)rules.sets[0]);
}
END_TEST

START_TEST(malformed_tokens_are_invalid)
{
    static const char *const headers[] = {"",
                                          "7",
                                          "{}",
                                          "{\"alg\":1}",
                                          "{\"alg\":\"HS256\",\"crit\":[\"exp\"]}",
                                          "{\"alg\":\"HS256\",\"alg\":\"HS256\"}",
                                          "{\"alg\":\"HS256\"} x"};
    static const char *const payloads[] = {"",
                                           "[]",
                                           "{",
                                           "{\"sub\":1,\"sub\":2}",
                                           "{\"sub\":\"a\",\"\\u0000\":1}",
                                           "{\"sub\":\"a\",\"\\ud83d\":1}",
                                           "{\"sub\":\"a\",\"x\":{\"y\":1,\"y\":1e400}}",
                                           "{\"sub\":01e400}",
                                           "{\"sub\":1.e400}",
                                           "{\"sub\":-.1e400}",
                                           "{\"sub\":1e400.5}",
                                           "{\"sub\":--1e400}",
                                           "{\"sub\":0099999999999999999999}",
                                           "{\"sub\":99999999999999999999",
                                           "{\"sub\":\"\\ud83",
                                           "{\"sub\":\"\\ud83d\\ude0",
                                           "{\"sub\":\"\\",
                                           "{\"sub\":-",
                                           "{\"sub\":\"\xff\"}"};
    static const char *const texts[] = {"",    ".",       "..",        "...",
                                        "a.b", "a.b.c.d", "a.b.c.d.e", "\xff.\xff.\xff"};
    struct jwt_rules rules = {.sets = {secret_key()}, .set_count = 1};
    struct jwt_token token;
    char *longer = malloc(JWT_TOKEN_MAX + 2);

    for (unsigned i = 0; i < COUNT_OF(headers); i++)
        ck_assert_msg(check(&rules, headers[i], "{}", 0) == JWT_MALFORMED, "%s", headers[i]);
    for (unsigned i = 0; i < COUNT_OF(payloads); i++)
        ck_assert_msg(check(&rules, HS256, payloads[i], 0) == JWT_BAD_CLAIMS, "%s", payloads[i]);
    for (unsigned i = 0; i < COUNT_OF(texts); i++)
        ck_assert_int_eq(jwt_verify(&rules, slice_of(texts[i]), 0, &token), JWT_MALFORMED);
    /* the encoded header is 4/3 as long */
    for (size_t n = JWT_HEADER_MAX / 4 * 3; n <= JWT_HEADER_MAX / 4 * 3 + 1; n++) {
        memset(longer, ' ', n);
        memcpy(longer, HS256, strlen(HS256));
        longer[n] = 0;
        ck_assert_int_eq(check(&rules, longer, "{}", 0),
                         n == JWT_HEADER_MAX / 4 * 3 ? JWT_GOOD : JWT_MALFORMED);
    }
    memset(longer, '[', JWT_TOKEN_MAX + 1); /* deeply nested */
    longer[JWT_TOKEN_MAX / 2] = 0;
    ck_assert_int_eq(check(&rules, HS256, longer, 0), JWT_BAD_CLAIMS);
    memset(longer, 'A', JWT_TOKEN_MAX + 1);
    ck_assert_int_eq(jwt_verify(&rules, (struct slice){longer, JWT_TOKEN_MAX + 1}, 0, &token),
                     JWT_MALFORMED);
    free(longer);
    jwt_keys_drop((struct jwt_keys *)rules.sets[0]);
}
END_TEST

START_TEST(each_token_has_exactly_one_valid_encoding)
{
    unsigned char bytes[8];
    size_t size;

    ck_assert(base64url_decode(SLICE("-_8"), bytes, 8, &size) && size == 2 && bytes[0] == 0xfb &&
              bytes[1] == 0xff);
    ck_assert(base64url_decode(SLICE(""), bytes, 8, &size) && size == 0);
    ck_assert(!base64url_decode(SLICE("-_9"), bytes, 8, &size)); /* bits at the end */
    ck_assert(!base64url_decode(SLICE("-_8="), bytes, 8, &size));
    ck_assert(!base64url_decode(SLICE("+/8"), bytes, 8, &size));
    ck_assert(!base64url_decode(SLICE("AAAAA"), bytes, 8, &size));
    ck_assert(!base64url_decode(SLICE("AA A"), bytes, 8, &size));
    ck_assert(base64url_decode(SLICE("AAAAAAAAAAA"), bytes, 8, &size) && size == 8);
    ck_assert(!base64url_decode(SLICE("AAAAAAAAAAAA"), bytes, 8, &size));
}
END_TEST

/* --- cache --- */

START_TEST(the_cache_drops_tokens_that_are_not_valid)
{
    struct token_cache *cache = token_cache_new(2, 8);
    struct token_hash one = token_cache_hash(cache, SLICE("one")),
                      two = token_cache_hash(cache, SLICE("two"));
    int at;

    ck_assert_int_eq(token_cache_find(cache, &one, 50), -1);
    at = token_cache_add(cache, &one, 10, 100);
    token_cache_set(cache, at, 0, SLICE("id:alice"));
    token_cache_set(cache, at, 1, SLICE("too long a text"));
    ck_assert_int_eq(token_cache_find(cache, &one, 10), at);
    ck_assert(slice_equal(token_cache_get(cache, at, 0), SLICE("id:alice")));
    ck_assert_uint_eq(token_cache_get(cache, at, 1).n, 0);
    ck_assert_int_eq(token_cache_find(cache, &one, 9), -1);
    ck_assert_int_eq(token_cache_find(cache, &one, 99), at);
    ck_assert_int_eq(token_cache_find(cache, &one, 100), -1);
    ck_assert_int_eq(token_cache_find(cache, &two, 50), -1);
    /* added again, without its values */
    ck_assert_int_eq(token_cache_add(cache, &one, 10, 200), at);
    ck_assert_uint_eq(token_cache_get(cache, at, 0).n, 0);
    token_cache_free(cache);
}
END_TEST

START_TEST(a_full_cache_keeps_the_tokens_in_use)
{
    struct token_cache *cache = token_cache_new(1, 8);
    struct token_hash busy = token_cache_hash(cache, SLICE("busy"));
    char name[16];

    token_cache_set(cache, token_cache_add(cache, &busy, 0, 100), 0, SLICE("busy"));
    for (unsigned i = 0; i < 4 * TOKEN_CACHE_SIZE; i++) {
        snprintf(name, sizeof name, "%u", i);
        struct token_hash other = token_cache_hash(cache, slice_of(name));
        int at = token_cache_add(cache, &other, 0, 100);
        ck_assert(at >= 0 && at < TOKEN_CACHE_SIZE);
        int found = token_cache_find(cache, &busy, 50);
        ck_assert(found >= 0 && slice_equal(token_cache_get(cache, found, 0), SLICE("busy")));
    }
    token_cache_free(cache);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("jwt");
    TCase *tests = tcase_create("all");

    tcase_add_test(tests, each_token_has_exactly_one_valid_encoding);
    tcase_add_test(tests, the_cache_drops_tokens_that_are_not_valid);
    tcase_add_test(tests, a_full_cache_keeps_the_tokens_in_use);
    tcase_add_loop_test(tests, published_tokens_are_verified, 0, (int)COUNT_OF(vectors));
    tcase_add_test(tests, unsecured_tokens_are_invalid);
    tcase_add_test(tests, the_key_determines_the_algorithm);
    tcase_add_test(tests, keys_are_found_by_kid);
    tcase_add_test(tests, keys_that_cannot_verify_are_skipped);
    tcase_add_test(tests, malformed_key_sets_are_refused);
    tcase_add_test(tests, dates_issuer_and_audience_are_checked);
    tcase_add_test(tests, claims_are_strings_and_integers);
    tcase_add_test(tests, malformed_tokens_are_invalid);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
