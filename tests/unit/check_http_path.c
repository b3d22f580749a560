/* check_http_path.c - normal forms and readings of paths; path and host patterns. */
#include <check.h>

#include "http/path.h"
#include "http/readings.h"
#include "run_suite.h"

static const struct {
    const char *path, *normal; /* NULL: refused */
} paths[] = {
    {"/", "/"},
    {"/a/", "/a/"},
    {"*", "*"},
    {"/*", "/*"},
    {"//a///b//", "//a///b//"},
    {"/a/../b/.", "/a/../b/."}, /* dot segments are handled elsewhere */
    {"/%6cogin", "/login"},
    {"/%4C%4f%2d%2E%5F%7E%39", "/LO-._~9"},
    {"/caf%c3%A9", "/caf\xc3\xa9"},
    {"/a%20b", "/a b"},
    {"/%c0%af", "/\xc0\xaf"},
    {"/a%2fb%5cc", "/a%2Fb%5Cc"},
    {"/%3a%3B%40%3f%23%25%2b",
     "/%3A%3B%40%3F%23%25%2B"}, /* reserved: not the same as their characters */
    {"/%01%7f%0a%22%7C", "/%01%7F%0A%22%7C"},
    {"/a|b[c]^{d}\"<e>\\`", "/a|b[c]^{d}\"<e>\\`"},
    {"/%252e%252e/a", "/%252e%252e/a"}, /* once, not twice */
    {"/a;v=1", "/a;v=1"},
    {"/%", NULL},
    {"/%4", NULL},
    {"/%zz", NULL},
    {"/%4g", NULL},
    {"/%+1", NULL},
    {"/%u002f", NULL}, /* IIS syntax */
    {"/a%00", NULL},
};

START_TEST(paths_have_one_normal_form)
{
    for (size_t i = 0; i < COUNT_OF(paths); i++) {
        char bytes[64], more[64];
        struct text out = text_over(bytes, sizeof bytes), again = text_over(more, sizeof more);
        bool ok = path_normalise(slice_of(paths[i].path), &out);
        ck_assert_msg(ok == (paths[i].normal != NULL), "%s", paths[i].path);
        if (!ok)
            continue;
        ck_assert_msg(slice_equal(text_slice(&out), slice_of(paths[i].normal)), "%s: %.*s",
                      paths[i].path, (int)out.n, out.p);
        ck_assert(path_normalise(text_slice(&out), &again));
        ck_assert_msg(slice_equal(text_slice(&out), text_slice(&again)), "%s", paths[i].path);
    }
}
END_TEST

START_TEST(dot_segments_are_removed_as_in_rfc_3986)
{
    static const struct {
        const char *path, *without; /* NULL: no dot segments */
    } cases[] = {
        {"/a/b", NULL},
        {"/", NULL},
        {"*", NULL},
        {"/a/.b/c./..d/...", NULL},
        {"/a/..;/b", NULL},
        {"/a/..%2fb", NULL},
        {"/.", "/"},
        {"/..", "/"},
        {"/a/.", "/a/"},
        {"/a/..", "/"},
        {"/a/b/..", "/a/"},
        {"/a/./b", "/a/b"},
        {"/a/b/../c", "/a/c"},
        {"/../../a", "/a"},
        {"/a/../../b", "/b"},
        {"/v1/../admin", "/admin"},
        {"/a//../b", "/a/b"},
        {"/..//../a", "/a"},
        {"/.//a", "//a"},
        {"/%2e/a", "/a"},
        {"/a/%2E%2e/b%2fc", "/b%2fc"},
        {"/a/.%2e", "/"},
        {"/a/b/c/./../../g", "/a/g"}, /* the example of RFC 3986 section 5.2.4 */
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char bytes[64];
        struct text out = text_over(bytes, sizeof bytes);
        struct slice path = slice_of(cases[i].path);
        ck_assert_msg(path_has_dot_segments(path) == (cases[i].without != NULL), "%s",
                      cases[i].path);
        if (path.p[0] == '*')
            continue;
        ck_assert(path_remove_dot_segments(path, &out));
        ck_assert_msg(
            slice_equal(text_slice(&out), cases[i].without ? slice_of(cases[i].without) : path),
            "%s: %.*s", cases[i].path, (int)out.n, out.p);
        ck_assert(!path_has_dot_segments(text_slice(&out)));
    }
}
END_TEST

static struct readings readings;

static bool has_reading(const char *path, const char *wanted)
{
    struct slice reading;
    bool found = false;

    readings_begin(&readings, slice_of(path));
    while (readings_next(&readings, &reading))
        found |= slice_equal(reading, slice_of(wanted));
    ck_assert_msg(!readings.too_many, "%s", path);
    return found;
}

START_TEST(paths_have_the_readings_of_servers)
{
    static const struct {
        const char *path, *reading; /* the path in normal form */
    } cases[] = {
        {"/v1/a/..%2F..%2Fhealthz", "/healthz"},
        {"/v1/a/..%2F..%2Fhealthz", "/v1/a/../../healthz"},
        {"/a%5C..%5Cb", "/b"},
        {"/x/..\\login", "/login"},
        {"/x/..\\\\login", "/login"},
        {"/%252e%252e/a", "/a"},
        {"/a%252Fb", "/a/b"},
        {"/a%25252Fb", "/a/b"},
        {"/%21%3A", "/!:"},
        {"//login", "/login"},
        {"/a//..//b", "/b"},
        {"/login;a=1", "/login"},
        {"/a;x/b;y", "/a/b"},
        {"/login%3Ba", "/login"},
        {"/x/..;/login", "/login"},
        {"/.;/login", "/login"},
        {"/x/..;%2Flogin", "/login"},
        {"//a.test/login", "/login"},
        {"/\\a.test/login", "/login"},
        {"///a.test/login", "/login"},
        {"//a.test", "/"},
        {"/login%3Fx", "/login"},
        {"/login%23x", "/login"},
        {"/login%2500.png", "/login"},
        {"/login%0A", "/login"},
        {"/login%0D%0Ax/y", "/login"},
        {"/lo%09gin", "/login"},
        {"/login.", "/login"},
        {"/login. .", "/login"},
        {"/login /x", "/login/x"},
        {"/a/.. /login", "/login"},
        {"/a\xc0\xaflogin", "/a/login"},
        {"/a\xe0\x80\xaflogin", "/a/login"},
        {"/a\xf0\x80\x80\xaflogin", "/a/login"},
        {"/a\xef\xbc\x8flogin", "/a/login"}, /* U+FF0F */
        {"/\xef\xbd\x8cogin", "/login"},     /* U+FF4C */
        {"/x/\xef\xbc\x8e\xef\xbc\x8e/login", "/login"},
        {"/x%25c0%25afy", "/x/y"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        ck_assert_msg(has_reading(cases[i].path, cases[i].reading), "%s as %s", cases[i].path,
                      cases[i].reading);
    ck_assert(!has_reading("/a+b", "/a b")); /* only in forms and queries */
    ck_assert(!has_reading("/Login", "/login"));
}
END_TEST

START_TEST(each_reading_is_returned_once_and_the_normal_form_first)
{
    struct slice reading;
    unsigned count = 0;

    readings_begin(&readings, SLICE("/a%2Fb"));
    ck_assert(readings_next(&readings, &reading) && slice_equal(reading, SLICE("/a%2Fb")));
    ck_assert(readings_next(&readings, &reading) && slice_equal(reading, SLICE("/a/b")));
    ck_assert(!readings_next(&readings, &reading) && !readings.too_many);
    readings_begin(&readings, SLICE("/a%2F%2Fb;c"));
    for (; readings_next(&readings, &reading); count++)
        for (unsigned i = 0; i < count; i++)
            ck_assert(!slice_equal(readings.at[i], reading));
    ck_assert_uint_eq(count, 6); /* with ";c" or without: coded, decoded, merged */
}
END_TEST

/* The work per path is bounded. */
START_TEST(the_number_of_readings_is_limited)
{
    static char path[READINGS_PATH_MAX];
    struct slice reading;
    unsigned count = 0;

    readings_begin(&readings, SLICE("//a%252F\\;b/..%5C%3Bc%3F.%09d. /\xc0\xaf//%25252e"));
    while (readings_next(&readings, &reading))
        count++;
    ck_assert(readings.too_many && count <= READINGS_MAX);

    for (size_t i = 0; i < sizeof path; i++)
        path[i] = "/a%2F%5C;b"[i % 10];
    readings_begin(&readings, (struct slice){path, sizeof path});
    for (count = 0; readings_next(&readings, &reading);)
        count++;
    ck_assert(readings.too_many && count < 8);
    memset(path, 'a', sizeof path);
    memcpy(path, "/%2F", 4);
    readings_begin(&readings, (struct slice){path, sizeof path});
    for (count = 0; readings_next(&readings, &reading);)
        count++;
    ck_assert(!readings.too_many &&
              count == 4); /* one, that decoded, merged, and without the authority */
}
END_TEST

START_TEST(a_path_that_does_not_fit_is_refused)
{
    char bytes[8];
    struct text out = text_over(bytes, 4);
    ck_assert(path_normalise(SLICE("/abc"), &out));
    out = text_over(bytes, 4);
    ck_assert(!path_normalise(SLICE("/abcd"), &out));
    out = text_over(bytes, 4);
    ck_assert(!path_normalise(SLICE("/a%2f"), &out));
    out = text_over(bytes, 0);
    ck_assert(!path_normalise(SLICE("*"), &out));
    out = text_over(bytes, 8); /* after existing text */
    text_literal(&out, "xyz/");
    ck_assert(path_remove_dot_segments(SLICE("/../a"), &out));
    ck_assert(slice_equal(text_slice(&out), SLICE("xyz//a")));
    ck_assert(!path_remove_dot_segments(SLICE("/ab"), &out));
}
END_TEST

START_TEST(patterns_match_segment_by_segment)
{
    static const struct {
        const char *pattern, *path;
        bool matches;
    } cases[] = {
        {"/", "/", true},
        {"/", "/a", false},
        {"/healthz", "/healthz", true},
        {"/healthz", "/healthz/", false},
        {"/healthz", "/Healthz", false},
        {"/healthz", "/health", false},
        {"/**", "/", true},
        {"/**", "/a/b/", true},
        {"/v1/**", "/v1", true},
        {"/v1/**", "/v1/", true},
        {"/v1/**", "/v1/a/b", true},
        {"/v1/**", "/v10", false},
        {"/v1/**", "/v10/a", false},
        {"/v1/**", "/", false},
        {"/*/x", "/a/x", true},
        {"/*/x", "/a/b/x", false},
        {"/*/x", "/x", false},
        {"/a*", "/a", true},
        {"/a*", "/abc", true},
        {"/a*", "/abc/d", false},
        {"/a*c*e", "/abcde", true},
        {"/a*c*e", "/ae", false},
        {"/*.json", "/a.b.json", true},
        {"/*.json", "/a.json5", false},
        {"/*aab", "/aaaaab", true},
        {"/users/*/posts/**", "/users/7/posts", true},
        {"/users/*/posts/**", "/users/7/posts/1/2", true},
        {"/users/*/posts/**", "/users/7/post", false},
        {"/a/**/b", "/a/x/b", true}, /* not last: as "*" within a segment */
        {"/a/**/b", "/a/x/y/b", false},
        {"*", "*", true},
        {"/**", "*", true}, /* OPTIONS for the server as a whole */
        {"/a/**", "*", false},
        {"*", "/", false},
        {"", "/", false},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        ck_assert_msg(path_matches(slice_of(cases[i].pattern), slice_of(cases[i].path),
                                   &(size_t){0}) == cases[i].matches,
                      "%s and %s", cases[i].pattern, cases[i].path);
}
END_TEST

START_TEST(hosts_match_without_port_and_case)
{
    static const struct {
        const char *pattern, *host;
        bool matches;
    } cases[] = {
        {"example.com", "example.com", true},
        {"example.com", "EXAMPLE.com:8080", true},
        {"example.com", "example.com.", true},
        {"example.com", "example.com.:80", true},
        {"example.com", "example.com:", true},
        {"Example.com", "example.com", true},
        {"example.com", "www.example.com", false},
        {"example.com", "example.community", false},
        {"*.example.com", "www.example.com", true},
        {"*.example.com", "a.b.EXAMPLE.com:80", true},
        {"*.example.com", "a.example.com.", true},
        {"*.example.com", "example.com", false},
        {"*.example.com", ".example.com", false},
        {"*.example.com", "badexample.com", false},
        {"[2001:db8::1]", "[2001:DB8::1]:80", true},
        {"[2001:db8::1]", "[2001:db8::1]", true},
        {"[2001:db8::1]", "[2001:db8::2]", false},
        {"example.com", "", false},
        {"*.example.com", "", false},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        ck_assert_msg(host_matches(slice_of(cases[i].pattern), slice_of(cases[i].host)) ==
                          cases[i].matches,
                      "%s and %s", cases[i].pattern, cases[i].host);
    ck_assert(!host_matches(SLICE("example.com"), SLICE_NONE));
    ck_assert(!host_matches(SLICE("*.example.com"), SLICE_NONE));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("http path");
    TCase *tests = tcase_create("path");
    tcase_add_test(tests, paths_have_one_normal_form);
    tcase_add_test(tests, dot_segments_are_removed_as_in_rfc_3986);
    tcase_add_test(tests, paths_have_the_readings_of_servers);
    tcase_add_test(tests, each_reading_is_returned_once_and_the_normal_form_first);
    tcase_add_test(tests, the_number_of_readings_is_limited);
    tcase_add_test(tests, a_path_that_does_not_fit_is_refused);
    tcase_add_test(tests, patterns_match_segment_by_segment);
    tcase_add_test(tests, hosts_match_without_port_and_case);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
