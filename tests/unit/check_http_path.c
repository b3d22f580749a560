/* Normal forms of paths, and the patterns that match them and hosts. */
#include <check.h>

#include "http/path.h"
#include "run_suite.h"

static const struct {
    const char *path, *normal; /* NULL: refused */
} paths[] = {
    {"/", "/"},
    {"/?", "/"},
    {"/a", "/a"},
    {"/a/", "/a/"},
    {"/a/b?c/../d", "/a/b"},
    {"*", "*"},
    {"/*", "/*"},
    {"//", "/"},
    {"//a///b//", "/a/b/"},
    {"/.", "/"},
    {"/..", "/"},
    {"/../..//../a", "/a"},
    {"/a/.", "/a/"},
    {"/a/./b", "/a/b"},
    {"/a/..", "/"},
    {"/a/../", "/"},
    {"/a/b/..", "/a/"},
    {"/a/b/../c", "/a/c"},
    {"/a//../b", "/b"},
    {"/a/.../b", "/a/.../b"},
    {"/a/..b/.c", "/a/..b/.c"},
    {"/v1/../admin", "/admin"},
    {"/%761/", "/v1/"},
    {"/%61%2F%62", "/a/b"},
    {"/a%2f%2e%2E%2fb", "/b"},
    {"/a/%2e%2e/b", "/b"},
    {"/a/.%2e", "/"},
    {"/%2e/a", "/a"},
    {"/%252e%252e/a", "/%2e%2e/a"}, /* once, not twice */
    {"/a%3fb?c", "/a?b"},
    {"/a%23b", "/a#b"},
    {"/a;v=1/../b;w", "/b;w"},
    {"/a/..;/b", "/a/..;/b"},
    {"/a%20b", "/a b"},
    {"/%c3%a9", "/\xc3\xa9"},
    {"/a?%zz", "/a"},
    {"", NULL},
    {"?a", NULL},
    {"a/b", NULL},
    {"**", NULL},
    {"/%", NULL},
    {"/%4", NULL},
    {"/%4?1", NULL},
    {"/%zz", NULL},
    {"/%4g", NULL},
    {"/%+1", NULL},
    {"/a%00", NULL},
};

START_TEST(paths_have_one_normal_form)
{
    for (size_t i = 0; i < COUNT_OF(paths); i++) {
        char bytes[64];
        struct text out = text_over(bytes, sizeof bytes);
        bool ok = path_normalise(slice_of(paths[i].path), &out);
        ck_assert_msg(ok == (paths[i].normal != NULL), "%s", paths[i].path);
        if (ok)
            ck_assert_msg(slice_equal(text_slice(&out), slice_of(paths[i].normal)), "%s: %.*s", paths[i].path,
                          (int)out.n, out.p);
    }
}
END_TEST

START_TEST(a_path_that_does_not_fit_is_refused)
{
    char bytes[8];
    struct text out = text_over(bytes, 4);
    ck_assert(path_normalise(SLICE("/abc"), &out));
    out = text_over(bytes, 4);
    ck_assert(!path_normalise(SLICE("/abcd"), &out));
    out = text_over(bytes, 0);
    ck_assert(!path_normalise(SLICE("*"), &out));
    out = text_over(bytes, 8); /* behind what stands there already */
    text_literal(&out, "xyz/");
    ck_assert(path_normalise(SLICE("/../a"), &out));
    ck_assert(slice_equal(text_slice(&out), SLICE("xyz//a")));
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
        {"/**", "*", false},
        {"*", "/", false},
        {"", "/", false},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        ck_assert_msg(path_matches(slice_of(cases[i].pattern), slice_of(cases[i].path)) == cases[i].matches,
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
        ck_assert_msg(host_matches(slice_of(cases[i].pattern), slice_of(cases[i].host)) == cases[i].matches,
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
    tcase_add_test(tests, a_path_that_does_not_fit_is_refused);
    tcase_add_test(tests, patterns_match_segment_by_segment);
    tcase_add_test(tests, hosts_match_without_port_and_case);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
