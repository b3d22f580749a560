/* check_json_tree.c - RFC 8259: valid JSON, and its strings. */
#include <check.h>
#include <stdlib.h>

#include "base/json_tree.h"
#include "run_suite.h"

static bool is_json(const char *text)
{
    struct arena arena = {NULL};
    bool good = json_read(&arena, slice_of(text)) != NULL;
    arena_free(&arena);
    return good;
}

START_TEST(valid_and_invalid_json)
{
    static const char *const good[] = {"{}",
                                       " [ ] ",
                                       "null",
                                       "true",
                                       "-0",
                                       "1e9",
                                       "-1.5E-3",
                                       "\"\"",
                                       "{\"a\":[1,{\"b\":null}],\"a\":2}",
                                       "\t\r\n1 ",
                                       "[[[[[[[[[[[[[[[0]]]]]]]]]]]]]]]"};
    static const char *const bad[] = {"",
                                      " ",
                                      "{",
                                      "}",
                                      "[1,]",
                                      "{,}",
                                      "{\"a\"}",
                                      "{\"a\":}",
                                      "{a:1}",
                                      "{'a':1}",
                                      "01",
                                      "1.",
                                      ".5",
                                      "+1",
                                      "-",
                                      "1e",
                                      "0x1",
                                      "NaN",
                                      "nul",
                                      "truee",
                                      "\"",
                                      "\"\\\"",
                                      "\"\\x\"",
                                      "\"\\u12\"",
                                      "\"\\u0000\"",
                                      "\"\\ud800\"",
                                      "\"\\ud800\\u0041\"",
                                      "\"\\udc00\"",
                                      "\"a\nb\"",
                                      "1 2",
                                      "[1 2]",
                                      "{\"a\":1 \"b\":2}",
                                      "[1]]",
                                      "\"\\",
                                      "[[[[[[[[[[[[[[[[[0]]]]]]]]]]]]]]]]]"};

    for (size_t i = 0; i < COUNT_OF(good); i++)
        ck_assert_msg(is_json(good[i]), "%s", good[i]);
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        ck_assert_msg(!is_json(bad[i]), "%s", bad[i]);
}
END_TEST

START_TEST(members_and_elements_are_found)
{
    struct arena arena = {NULL};
    const struct json_node *node =
        json_read(&arena, SLICE("{\"a\":{\"b\":-1.5e2,\"c\":\"x\\n\\\"\\/"
                                "\\u00e9\\u20ac\\ud83d\\ude00\"},\"d\":[true,2]}"));

    ck_assert(json_double(json_at(node, "a.b"), 0) == -150);
    ck_assert(slice_equal(json_string(json_at(node, "a.c")),
                          SLICE("x\n\"/\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80")));
    ck_assert(json_member(node, "d")->first->value &&
              json_double(json_member(node, "d")->first->next, 0) == 2);
    ck_assert_ptr_null(json_at(node, "a.b.c"));
    ck_assert_ptr_null(json_at(node, "x.y"));
    ck_assert(json_double(json_at(node, "a.c"), 7) == 7 && json_string(NULL).n == 0);
    arena_free(&arena);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("json tree");
    TCase *tests = tcase_create("json tree");
    tcase_add_test(tests, valid_and_invalid_json);
    tcase_add_test(tests, members_and_elements_are_found);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
