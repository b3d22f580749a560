/* check_sha256.c - SHA-256 and HMAC-SHA-256, with the vectors of FIPS 180-4 and RFC 4231, however
 * the input is cut. */
#include <check.h>

#include "base/sha256.h"
#include "base/text.h"
#include "run_suite.h"

static void assert_hex(const unsigned char digest[SHA256_SIZE], const char *hex)
{
    char bytes[2 * SHA256_SIZE + 1] = "";
    struct text text = text_over(bytes, sizeof bytes);

    for (unsigned i = 0; i < SHA256_SIZE; i++)
        text_hex_fixed(&text, digest[i], 2);
    ck_assert_str_eq(bytes, hex);
}

static void assert_hash(struct slice input, const char *hex)
{
    unsigned char digest[SHA256_SIZE];
    struct sha256 hash;

    for (size_t cut = 0; cut <= input.n && cut < (input.n > 200 ? 2 : 200); cut++) {
        sha256_begin(&hash);
        sha256_add(&hash, (struct slice){input.p, cut});
        sha256_add(&hash, (struct slice){input.p + cut, input.n - cut});
        sha256_end(&hash, digest);
        assert_hex(digest, hex);
    }
}

START_TEST(sha256_equals_the_published_digests)
{
    static char million[1000000];

    assert_hash(SLICE(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    assert_hash(SLICE("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_hash(SLICE("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
                "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    memset(million, 'a', sizeof million);
    assert_hash((struct slice){million, sizeof million},
                "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}
END_TEST

static void assert_hmac(struct slice key, struct slice input, const char *hex)
{
    unsigned char digest[SHA256_SIZE];
    struct hmac_key prepared;

    hmac_key_init(&prepared, key);
    for (unsigned twice = 0; twice < 2; twice++) {
        struct sha256 hash = hmac_begin(&prepared);
        sha256_add(&hash, input);
        hmac_end(&prepared, &hash, digest);
        assert_hex(digest, hex);
    }
}

START_TEST(hmac_equals_the_digests_of_rfc_4231)
{
    char key[131], text[50];

    memset(key, 0x0b, 20);
    assert_hmac((struct slice){key, 20}, SLICE("Hi There"),
                "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    assert_hmac(SLICE("Jefe"), SLICE("what do ya want for nothing?"),
                "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    memset(key, 0xaa, sizeof key);
    memset(text, 0xdd, sizeof text);
    assert_hmac((struct slice){key, 20}, (struct slice){text, sizeof text},
                "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
    assert_hmac((struct slice){key, sizeof key},
                SLICE("Test Using Larger Than Block-Size Key - Hash Key First"),
                "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sha256");
    TCase *tests = tcase_create("all");
    tcase_add_test(tests, sha256_equals_the_published_digests);
    tcase_add_test(tests, hmac_equals_the_digests_of_rfc_4231);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
