/* check_policy_values.c - durations, sizes, numbers, suggestions, and quoting in messages. */
#include <check.h>

#include "base/values.h"
#include "config/report.h"
#include "config/suggest.h"
#include "run_suite.h"

static const struct {
    const char *text;
    enum value_result result;
    int64_t us;
    const char *written; /* NULL: as text */
} durations[] = {
    {"500us", VALUE_GOOD, 500, NULL},
    {"25ms", VALUE_GOOD, 25000, NULL},
    {"1s", VALUE_GOOD, 1000000, NULL},
    {"1m", VALUE_GOOD, 60000000, NULL},
    {"1h", VALUE_GOOD, 3600000000, NULL},
    {"1d", VALUE_GOOD, 86400000000, NULL},
    {"90s", VALUE_GOOD, 90000000, NULL},
    {"60s", VALUE_GOOD, 60000000, "1m"},
    {"1000us", VALUE_GOOD, 1000, "1ms"},
    {"0", VALUE_GOOD, 0, "0s"},
    {"0ms", VALUE_GOOD, 0, "0s"},
    {"106751991d", VALUE_GOOD, 9223372022400000000, NULL},
    {"106751992d", VALUE_TOO_LARGE, 0, NULL},
    {"99999999999999999999s", VALUE_TOO_LARGE, 0, NULL},
    {"20", VALUE_NO_UNIT, 0, NULL},
    {"", VALUE_NO_NUMBER, 0, NULL},
    {"s", VALUE_NO_NUMBER, 0, NULL},
    {"-1s", VALUE_NO_NUMBER, 0, NULL},
    {"1.5s", VALUE_NO_NUMBER, 0, NULL},
    {"1S", VALUE_NO_NUMBER, 0, NULL},
    {"1 s", VALUE_NO_NUMBER, 0, NULL},
    {"1s ", VALUE_NO_NUMBER, 0, NULL},
    {"1week", VALUE_NO_NUMBER, 0, NULL},
};

START_TEST(durations_are_parsed_and_formatted)
{
    char room[32];
    for (size_t i = 0; i < COUNT_OF(durations); i++) {
        int64_t us = 0;
        struct text text = text_over(room, sizeof room);
        ck_assert_msg(duration_read(slice_of(durations[i].text), &us) == durations[i].result, "%s",
                      durations[i].text);
        if (durations[i].result != VALUE_GOOD)
            continue;
        ck_assert_int_eq(us, durations[i].us);
        duration_write(&text, us);
        ck_assert(
            slice_equal(text_slice(&text),
                        slice_of(durations[i].written ? durations[i].written : durations[i].text)));
    }
}
END_TEST

START_TEST(sizes_are_parsed_and_formatted)
{
    static const struct {
        const char *text;
        int64_t bytes;
    } sizes[] = {
        {"0", 0},      {"512", 512}, {"8k", 8192}, {"1m", 1 << 20}, {"3g", INT64_C(3) << 30},
        {"1025", 1025}};
    char room[32];
    int64_t bytes;

    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        struct text text = text_over(room, sizeof room);
        ck_assert_int_eq(size_read(slice_of(sizes[i].text), &bytes), VALUE_GOOD);
        ck_assert_int_eq(bytes, sizes[i].bytes);
        size_write(&text, bytes);
        ck_assert(slice_equal(text_slice(&text), slice_of(sizes[i].text)));
    }
    ck_assert_int_eq(size_read(SLICE("8K"), &bytes), VALUE_NO_NUMBER);
    ck_assert_int_eq(size_read(SLICE("k"), &bytes), VALUE_NO_NUMBER);
    ck_assert_int_eq(size_read(SLICE("9000000000g"), &bytes), VALUE_TOO_LARGE);
}
END_TEST

START_TEST(numbers_are_parsed)
{
    int64_t number;

    ck_assert_int_eq(number_read(SLICE("9223372036854775807"), &number), VALUE_GOOD);
    ck_assert_int_eq(number, INT64_MAX);
    ck_assert_int_eq(number_read(SLICE("-12"), &number), VALUE_GOOD);
    ck_assert_int_eq(number, -12);
    ck_assert_int_eq(number_read(SLICE("9223372036854775808"), &number), VALUE_TOO_LARGE);
    ck_assert_int_eq(number_read(SLICE("-"), &number), VALUE_NO_NUMBER);
    ck_assert_int_eq(number_read(SLICE(""), &number), VALUE_NO_NUMBER);
    ck_assert_int_eq(number_read(SLICE("1e3"), &number), VALUE_NO_NUMBER);
}
END_TEST

static const char *nearest(const char *word)
{
    static const char *const words[] = {"burst", "best_effort", "limit", "period",
                                        "per",   "label",       "ip",    "a"};
    struct suggestion meant = suggestion_for(slice_of(word));
    for (size_t i = 0; i < COUNT_OF(words); i++)
        suggestion_consider(&meant, slice_of(words[i]));
    return meant.best.n ? meant.best.p : "";
}

START_TEST(decimals_are_parsed)
{
    static const char *const bad[] = {"",
                                      ".",
                                      ".5",
                                      "1.",
                                      "1.2345",
                                      "1..2",
                                      "1.2.3",
                                      "-1",
                                      "+1",
                                      "1 ",
                                      "0x1",
                                      "1e3",
                                      "99999999999999999999x"};
    static const char *const large[] = {"1000.001", "1001", "99999999999999999999999.5"};
    int64_t n = 0;

    ck_assert(decimal_read(SLICE("1.5"), 3, 1000000, &n) == VALUE_GOOD && n == 1500);
    ck_assert(decimal_read(SLICE("0.001"), 3, 1000000, &n) == VALUE_GOOD && n == 1);
    ck_assert(decimal_read(SLICE("007"), 3, 1000000, &n) == VALUE_GOOD && n == 7000);
    ck_assert(decimal_read(SLICE("1000"), 3, 1000000, &n) == VALUE_GOOD && n == 1000000);
    for (unsigned i = 0; i < COUNT_OF(bad); i++)
        ck_assert(decimal_read(slice_of(bad[i]), 3, 1000000, &n) == VALUE_NO_NUMBER);
    for (unsigned i = 0; i < COUNT_OF(large); i++)
        ck_assert(decimal_read(slice_of(large[i]), 3, 1000000, &n) == VALUE_TOO_LARGE);
    ck_assert(share_read(SLICE("12.5%"), &n) == VALUE_GOOD && n == 1250);
    ck_assert(share_read(SLICE("%"), &n) == VALUE_NO_NUMBER);
    ck_assert(share_read(SLICE("5"), &n) == VALUE_NO_NUMBER);
}
END_TEST

START_TEST(the_nearest_word_is_suggested)
{
    ck_assert_str_eq(nearest("brust"), "burst");
    ck_assert_str_eq(nearest("burts"), "burst");
    ck_assert_str_eq(nearest("limits"), "limit");
    ck_assert_str_eq(nearest("besteffort"), "best_effort");
    ck_assert_str_eq(nearest("pre"), "per");
    ck_assert_str_eq(nearest("Period"), "period");
    ck_assert_str_eq(nearest("colour"), "");
    ck_assert_str_eq(nearest("x"), "");
    ck_assert_str_eq(nearest(""), "");
}
END_TEST

START_TEST(quotes_are_short_and_printable)
{
    char word[300];

    ck_assert_str_eq(QUOTE(SLICE("abc")), "\"abc\"");
    ck_assert_str_eq(QUOTE(SLICE("a\nb\x1b[2J\x7f")), "\"a\\x0ab\\x1b[2J\\x7f\"");
    memset(word, 'x', sizeof word);
    const char *quote = QUOTE(((struct slice){word, sizeof word}));
    ck_assert_uint_eq(strlen(quote), 65);
    ck_assert_str_eq(quote + 58, "xxx...\"");
    memset(word, 1, sizeof word);
    quote = QUOTE(((struct slice){word, sizeof word})); /* escaped text is cut earlier */
    ck_assert_str_eq(quote + strlen(quote) - 8, "\\x01...\"");
    for (size_t i = 0; i < 300; i += 2)
        memcpy(word + i, "\xc3\xa9", 2);
    ck_assert_uint_eq(strlen(QUOTE(((struct slice){word, 300}))), 65);
    /* no partial character */
    ck_assert_uint_eq(strlen(QUOTE(((struct slice){word + 1, 299}))), 64);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("policy values");
    TCase *tests = tcase_create("values");
    tcase_add_test(tests, durations_are_parsed_and_formatted);
    tcase_add_test(tests, sizes_are_parsed_and_formatted);
    tcase_add_test(tests, numbers_are_parsed);
    tcase_add_test(tests, decimals_are_parsed);
    tcase_add_test(tests, the_nearest_word_is_suggested);
    tcase_add_test(tests, quotes_are_short_and_printable);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
