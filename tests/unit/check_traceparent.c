/* check_traceparent.c - the traceparent field (W3C Trace Context). */
#include <check.h>
#include <string.h>

#include "base/macros.h"
#include "http/traceparent.h"
#include "run_suite.h"

#define ID     "0af7651916cd43dd8448eb211c80319c"
#define PARENT "b7ad6b7169203331"

START_TEST(valid_values_have_an_id)
{
    static const char *const valid[] = {"00-" ID "-" PARENT "-01", "00-" ID "-" PARENT "-00",
                                        "00-" ID "-" PARENT "-ff", "cc-" ID "-" PARENT "-01",
                                        "cc-" ID "-" PARENT "-01-what-the-future-brings"};

    for (size_t i = 0; i < COUNT_OF(valid); i++) {
        struct slice id = traceparent_id(slice_of(valid[i]));
        ck_assert_msg(slice_equal(id, SLICE(ID)), "%s", valid[i]);
    }
}
END_TEST

START_TEST(malformed_values_have_no_id)
{
    static const char *const malformed[] = {"",
                                            "00",
                                            "00-" ID "-" PARENT "-0",
                                            "00-" ID "-" PARENT,
                                            "00-" ID "-" PARENT "-01-",
                                            "00-" ID "-" PARENT "-011",
                                            "cc-" ID "-" PARENT "-01.what",
                                            "ff-" ID "-" PARENT "-01",
                                            "0g-" ID "-" PARENT "-01",
                                            "00-" ID "-" PARENT "-0x",
                                            "00-00000000000000000000000000000000-" PARENT "-01",
                                            "00-" ID "-0000000000000000-01",
                                            "00-0AF7651916CD43DD8448EB211C80319C-" PARENT "-01",
                                            "00-0af7651916cd43dd8448eb211c80319\"-" PARENT "-01",
                                            "00_" ID "-" PARENT "-01",
                                            "00-" ID "_" PARENT "-01",
                                            "00-" ID "-" PARENT "_01",
                                            "00-" ID "-b7ad6b71692033-1-01"};

    for (size_t i = 0; i < COUNT_OF(malformed); i++) {
        size_t n = strlen(malformed[i]);
        char *bytes = malloc(n ? n : 1); /* so that AddressSanitizer detects overreads */
        memcpy(bytes, malformed[i], n);
        ck_assert_msg(traceparent_id((struct slice){bytes, n}).n == 0, "%s", malformed[i]);
        free(bytes);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("traceparent");
    TCase *tests = tcase_create("traceparent");
    tcase_add_test(tests, valid_values_have_an_id);
    tcase_add_test(tests, malformed_values_have_no_id);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
