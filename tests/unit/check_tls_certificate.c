/* check_tls_certificate.c - the names that weir reads of a client's certificate. */
#include <check.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "net/tls_certificate.h"
#include "net/tls_internal.h"
#include "run_suite.h"

/* --- Certificates without a signature --------------------------------------------------------- */

static X509 *certificate_new(void)
{
    X509 *made = X509_new();

    ck_assert_ptr_nonnull(made);
    X509_set_version(made, X509_VERSION_3);
    ASN1_INTEGER_set(X509_get_serialNumber(made), 7);
    X509_gmtime_adj(X509_getm_notBefore(made), 0);
    X509_gmtime_adj(X509_getm_notAfter(made), 3600);
    return made;
}

/* Adds bytes as they are: X509_NAME_add_entry_by_txt() would check their length. */
static void add_name(X509 *certificate, int nid, int type, const char *bytes, size_t size)
{
    ck_assert_msg(X509_NAME_add_entry_by_NID(X509_get_subject_name(certificate), nid, type,
                                             (const unsigned char *)bytes, (int)size, -1, 0) == 1,
                  "\"%.*s\"", (int)size, bytes);
}

static void add_cn(X509 *certificate, const char *bytes, size_t size)
{
    add_name(certificate, NID_commonName, V_ASN1_UTF8STRING, bytes, size);
}

struct alternative {
    int type;
    const char *bytes;
    size_t size;
};

static void add_alternatives(X509 *certificate, const struct alternative *all, unsigned count)
{
    GENERAL_NAMES *names = sk_GENERAL_NAME_new_null();

    for (unsigned i = 0; i < count; i++) {
        GENERAL_NAME *name = GENERAL_NAME_new();
        bool is_ip = all[i].type == GEN_IPADD;
        ASN1_STRING *value = ASN1_STRING_type_new(is_ip ? V_ASN1_OCTET_STRING : V_ASN1_IA5STRING);
        ASN1_STRING_set(value, all[i].bytes, (int)all[i].size);
        GENERAL_NAME_set0_value(name, all[i].type, value);
        sk_GENERAL_NAME_push(names, name);
    }
    ck_assert_int_eq(
        X509_add1_ext_i2d(certificate, NID_subject_alt_name, names, 0, X509V3_ADD_DEFAULT), 1);
    GENERAL_NAMES_free(names);
}

/* Signs, encodes and decodes the certificate, as a client would send it, and reads it. Frees it.
 * Returns NULL if OpenSSL accepts no certificate with such a name. */
static struct tls_certificate *read_it(X509 *certificate)
{
    static EVP_PKEY *key;
    unsigned char *der = NULL;

    if (!key)
        key = EVP_EC_gen("P-256");
    ck_assert_int_eq(X509_set_pubkey(certificate, key), 1);
    bool good = X509_sign(certificate, key, EVP_sha256()) > 0;
    int size = good ? i2d_X509(certificate, &der) : 0;
    X509_free(certificate);
    if (!good)
        return NULL;
    const unsigned char *at = der;
    X509 *decoded = d2i_X509(NULL, &at, size);
    ck_assert_ptr_nonnull(decoded);
    struct tls_certificate *made = tls_certificate_new(decoded, 42);
    ck_assert_ptr_nonnull(made);
    ck_assert_uint_eq(made->fingerprint.n, TLS_FINGERPRINT_DIGITS);
    ck_assert_int_eq(made->until_s, 42);
    X509_free(decoded);
    OPENSSL_free(der);
    return made;
}

static void assert_slice(struct slice got, const char *expected)
{
    ck_assert_msg(slice_equal(got, slice_of(expected)), "\"%.*s\" in place of \"%s\"",
                  SLICE_ARG(got), expected);
}

/* --- Common names ----------------------------------------------------------------------------- */

static void assert_cn(int type, const char *bytes, size_t size, const char *expected)
{
    X509 *certificate = certificate_new();

    add_name(certificate, NID_commonName, type, bytes, size);
    struct tls_certificate *made = read_it(certificate);
    ck_assert(made || !expected);
    if (made)
        assert_slice(made->cn, expected ? expected : "");
    free(made);
}

#define CN(type, bytes, expected) assert_cn(type, bytes, sizeof(bytes) - 1, expected)

START_TEST(a_common_name_is_utf_8_without_control_characters)
{
    CN(V_ASN1_UTF8STRING, "alice", "alice");
    CN(V_ASN1_PRINTABLESTRING, "alice", "alice");
    CN(V_ASN1_UTF8STRING, "j\xc3\xbcrgen", "j\xc3\xbcrgen");
    CN(V_ASN1_T61STRING, "j\xfcrgen", "j\xc3\xbcrgen");
    CN(V_ASN1_BMPSTRING, "\0j\0\xfc", "j\xc3\xbc");
    CN(V_ASN1_UTF8STRING, " alice ", " alice ");
    CN(V_ASN1_UTF8STRING, "alice\0.example", "");
    CN(V_ASN1_BMPSTRING, "\0j\0\0", "");
    CN(V_ASN1_UTF8STRING, "al\nice", "");
    CN(V_ASN1_UTF8STRING, "alice\x7f", "");
    CN(V_ASN1_UTF8STRING, "alice\xc2\x85", "");
    CN(V_ASN1_T61STRING, "alice\x85", "");
    CN(V_ASN1_UTF8STRING, "alice\xc2\xa0", "alice\xc2\xa0");
    CN(V_ASN1_UTF8STRING, "alice\xff", NULL);
    CN(V_ASN1_UTF8STRING, "\xc0\x80", NULL);
}
END_TEST

START_TEST(several_common_names_are_none)
{
    X509 *certificate = certificate_new();

    add_cn(certificate, "alice", 5);
    add_name(certificate, NID_organizationName, V_ASN1_UTF8STRING, "shop", 4);
    add_cn(certificate, "alice", 5);
    struct tls_certificate *made = read_it(certificate);
    assert_slice(made->cn, "");
    assert_slice(made->subject, "CN=alice,O=shop,CN=alice");
    free(made);
}
END_TEST

START_TEST(a_long_common_name_is_whole)
{
    char long_name[10000];
    X509 *certificate = certificate_new();

    memset(long_name, 'x', sizeof long_name);
    add_cn(certificate, long_name, sizeof long_name);
    struct tls_certificate *made = read_it(certificate);
    ck_assert(slice_equal(made->cn, (struct slice){long_name, sizeof long_name}));
    assert_slice(made->subject, "");
    free(made);
}
END_TEST

/* --- Alternative names ------------------------------------------------------------------------ */

static void assert_san(const struct alternative *all, unsigned count, const char *expected)
{
    X509 *certificate = certificate_new();

    add_cn(certificate, "alice", 5);
    add_alternatives(certificate, all, count);
    struct tls_certificate *made = read_it(certificate);
    assert_slice(made->san, expected);
    free(made);
}

#define SAN(expected, ...)                                                                         \
    assert_san((const struct alternative[]){__VA_ARGS__},                                          \
               COUNT_OF(((const struct alternative[]){__VA_ARGS__})), expected)

START_TEST(the_first_alternative_name_counts)
{
    static const struct alternative dns = {GEN_DNS, "a.example", 9},
                                    uri = {GEN_URI, "spiffe://x/y", 12},
                                    mail = {GEN_EMAIL, "a@b.example", 11},
                                    ip = {GEN_IPADD, "\x0a\0\0\1", 4},
                                    nul = {GEN_DNS, "a.example\0b", 11},
                                    line = {GEN_URI, "spiffe://\n", 10},
                                    high = {GEN_EMAIL, "j\xfcrgen@b", 8}, none = {GEN_DNS, "", 0};

    SAN("a.example", dns, uri, mail);
    SAN("spiffe://x/y", uri, dns);
    SAN("a@b.example", mail, dns);
    SAN("a.example", ip, dns);
    SAN("", ip);
    SAN("", nul, dns);
    SAN("", line, dns);
    SAN("", high, dns);
    SAN("", none, dns);
}
END_TEST

START_TEST(alternative_names_that_stand_twice_are_none)
{
    static const struct alternative dns = {GEN_DNS, "a.example", 9};
    X509 *certificate = certificate_new();
    GENERAL_NAMES *names;

    add_alternatives(certificate, &dns, 1);
    names = X509_get_ext_d2i(certificate, NID_subject_alt_name, NULL, NULL);
    ck_assert_int_eq(
        X509_add1_ext_i2d(certificate, NID_subject_alt_name, names, 0, X509V3_ADD_APPEND), 1);
    GENERAL_NAMES_free(names);
    struct tls_certificate *made = read_it(certificate);
    assert_slice(made->san, "");
    free(made);
}
END_TEST

/* --- Subjects --------------------------------------------------------------------------------- */

static void assert_subject(const char *cn, size_t size, const char *expected)
{
    X509 *certificate = certificate_new();

    if (size)
        add_cn(certificate, cn, size);
    struct tls_certificate *made = read_it(certificate);
    assert_slice(made->subject, expected);
    free(made);
}

#define SUBJECT(cn, expected) assert_subject(cn, sizeof(cn) - 1, expected)

START_TEST(a_subject_has_the_form_of_rfc_4514)
{
    SUBJECT("", "");
    SUBJECT("alice", "CN=alice");
    SUBJECT("a,b+c\"d\\e<f>g;h", "CN=a\\,b\\+c\\\"d\\\\e\\<f\\>g\\;h");
    SUBJECT("#a", "CN=\\#a");
    SUBJECT(" a", "CN=\\ a");
    SUBJECT("a ", "CN=a\\20");
    SUBJECT("j\xc3\xbcrgen", "CN=j\\C3\\BCrgen");
    SUBJECT("a\0b\r\nc", "CN=a\\00b\\0D\\0Ac");
}
END_TEST

/* --- Random names ----------------------------------------------------------------------------- */

static const int types[] = {V_ASN1_UTF8STRING, V_ASN1_PRINTABLESTRING, V_ASN1_T61STRING,
                            V_ASN1_BMPSTRING,  V_ASN1_UNIVERSALSTRING, V_ASN1_IA5STRING};

static bool has_control(struct slice s)
{
    for (size_t i = 0; i < s.n; i++)
        if ((unsigned char)s.p[i] < ' ' || s.p[i] == 0x7f)
            return true;
    return false;
}

/* Whatever the bytes are: no control character in a name, visible ASCII in the rest. */
START_TEST(random_names_have_no_control_characters)
{
    char bytes[40];
    unsigned read = 0;

    srandom(20261126);
    for (unsigned round = 0; round < 300; round++) {
        X509 *certificate = certificate_new();
        struct alternative name = {GEN_EMAIL + (int)(random() % 2), bytes, (size_t)random() % 40};
        for (unsigned i = 0; i < sizeof bytes; i++)
            bytes[i] = (char)(random() % 4 ? 'a' + random() % 26 : random());
        (void)X509_NAME_add_entry_by_NID(
            X509_get_subject_name(certificate), random() % 3 ? NID_commonName : NID_surname,
            types[(size_t)random() % COUNT_OF(types)], (const unsigned char *)bytes,
            1 + (int)(random() % 39), -1, 0);
        add_alternatives(certificate, &name, 1);
        struct tls_certificate *made = read_it(certificate);
        if (!made)
            continue;
        read++;
        ck_assert(!has_control(made->cn) && !has_control(made->san) && !has_control(made->subject));
        for (size_t i = 0; i < made->subject.n; i++)
            ck_assert(made->subject.p[i] > 0);
        ck_assert(made->subject.n == 0 || made->subject.p[made->subject.n - 1] != ' ');
        free(made);
    }
    ck_assert_uint_gt(read, 75);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tls_certificate");
    TCase *tcase = tcase_create("names");

    tcase_add_test(tcase, a_common_name_is_utf_8_without_control_characters);
    tcase_add_test(tcase, several_common_names_are_none);
    tcase_add_test(tcase, a_long_common_name_is_whole);
    tcase_add_test(tcase, the_first_alternative_name_counts);
    tcase_add_test(tcase, alternative_names_that_stand_twice_are_none);
    tcase_add_test(tcase, a_subject_has_the_form_of_rfc_4514);
    tcase_add_test(tcase, random_names_have_no_control_characters);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
