/* check_hmac.c - HMAC-SHA-256, with the vectors of RFC 4231, however the input is cut. */
#include <check.h>

#include "base/hmac.h"
#include "base/text.h"
#include "run_suite.h"

static void assert_hex(const unsigned char digest[HMAC_SIZE], const char *hex)
{
    char bytes[2 * HMAC_SIZE + 1] = "";
    struct text text = text_over(bytes, sizeof bytes);

    for (unsigned i = 0; i < HMAC_SIZE; i++)
        text_hex_fixed(&text, digest[i], 2);
    ck_assert_str_eq(bytes, hex);
}

static void assert_hmac(struct slice key, struct slice input, const char *hex)
{
    unsigned char digest[HMAC_SIZE];
    struct hmac_key prepared;

    hmac_key_init(&prepared, key);
    for (size_t cut = 0; cut <= input.n; cut++) {
        SHA256_CTX hash = hmac_begin(&prepared);
        hmac_add(&hash, (struct slice){input.p, cut});
        hmac_add(&hash, (struct slice){input.p + cut, input.n - cut});
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
    Suite *suite = suite_create("hmac");
    TCase *tests = tcase_create("all");
    tcase_add_test(tests, hmac_equals_the_digests_of_rfc_4231);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
