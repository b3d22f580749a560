/* check_zone.c - truncated, corrupt and missing time zone files. tests/lua/calendar.py compares
 * valid files with Python. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "policy/zone.h"
#include "run_suite.h"

static char directory[] = "/tmp/weir-zones-XXXXXX";
static char path[64];
static struct arena arena;
static struct slice berlin;

static void set_up(void)
{
    const char *why;

    ck_assert_ptr_nonnull(mkdtemp(directory));
    snprintf(path, sizeof path, "%s/Mine", directory);
    ck_assert_msg(file_read(&arena, "/usr/share/zoneinfo/Europe/Berlin", 1 << 20, &berlin, &why),
                  "%s (Debian package tzdata)", why);
    setenv("TZDIR", directory, 1);
}

static void tear_down(void)
{
    unlink(path);
    rmdir(directory);
    arena_free(&arena);
}

static bool read_from_file(const char *bytes, size_t size, struct zone *zone, const char **why)
{
    unlink(path); /* overwriting a file is slow on disk */
    FILE *file = fopen(path, "we");
    struct arena mine = {NULL}, scratch = {NULL};

    ck_assert_uint_eq(fwrite(bytes, 1, size, file), size);
    fclose(file);
    bool good = zone_read(&mine, &scratch, SLICE("Mine"), zone, why);
    arena_free(&scratch);
    arena_free(&mine);
    return good;
}

START_TEST(a_truncated_file_is_refused)
{
    struct zone zone;
    const char *why;

    ck_assert(read_from_file(berlin.p, berlin.n, &zone, &why));
    ck_assert_uint_eq(zone.count, 80); /* twice a year for 40 years */
    for (size_t n = 0; n < berlin.n; n++) {
        why = NULL;
        ck_assert_msg(!read_from_file(berlin.p, n, &zone, &why) && why, "cut to %zu bytes", n);
    }
}
END_TEST

/* Any contents are accepted or refused; transitions are in order. */
START_TEST(a_corrupt_file_is_harmless)
{
    char *copy = malloc(berlin.n);

    srand(7);
    for (int i = 0; i < 2000; i++) {
        struct zone zone;
        const char *why;
        memcpy(copy, berlin.p, berlin.n);
        for (int k = rand() % 4; k >= 0; k--)
            copy[(size_t)rand() % (i % 2 ? berlin.n : 100)] = (char)rand();
        (void)read_from_file(copy, berlin.n, &zone, &why);
    }
    free(copy);
}
END_TEST

static void assert_rule(const char *rule, bool good, unsigned changes)
{
    char bytes[512] = {0};
    struct zone zone;
    const char *why = "";
    size_t n = 0;

    for (int block = 0; block < 2;
         block++) { /* version 1 and 2 data: no changes, one type, UTC+1 */
        memcpy(bytes + n, "TZif2", 5);
        bytes[n + 39] = 1; /* types */
        bytes[n + 43] = 4; /* letters */
        bytes[n + 46] = 0x0e;
        bytes[n + 47] = 0x10;
        n += 44 + 6 + 4;
    }
    n += (size_t)snprintf(bytes + n, sizeof bytes - n, "\n%s\n", rule);
    ck_assert_msg(read_from_file(bytes, n, &zone, &why) == good, "%s: %s", rule, why);
    if (good)
        ck_assert_msg(zone.count == changes, "%s: %u changes", rule, zone.count);
}

START_TEST(rules_after_the_last_transition)
{
    assert_rule("", true, 0);
    assert_rule("CET-1", true, 0);
    assert_rule("<+0330>-3:30", true, 0);
    assert_rule("CET-1CEST,M3.5.0,M10.5.0/3", true, 80);
    assert_rule("CET-1CEST-2,J60/2:00:00,J300", true, 80);
    assert_rule("A1B2,0/0,J365/25", false, 0); /* summer begins before the previous one has ended */
    assert_rule("XXX3EDT4,0/0,J365/23", true, 0); /* summer all year: no changes */
    assert_rule("EET-2EEST,M3.4.4/50,M10.4.4/50", true, 80);
    assert_rule("CET-1CEST", false, 0);
    assert_rule("CET", false, 0);
    assert_rule("CET-1CEST,M13.5.0,M10.5.0", false, 0);
    assert_rule("CET-1CEST,M3.5.0,M10.5.0x", false, 0);
    assert_rule("<+03", false, 0);
}
END_TEST

START_TEST(zone_names)
{
    static const char *const bad[] = {"",      "/etc/passwd", "../Mine",   "Mine/", "a//b",
                                      "Mi ne", ".",           "M\xc3\xa9", "Absent"};
    struct zone zone;
    struct arena scratch = {NULL};
    const char *why;

    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        why = NULL;
        ck_assert_msg(!zone_read(&arena, &scratch, slice_of(bad[i]), &zone, &why) && why, "\"%s\"",
                      bad[i]);
    }
    ck_assert_str_eq(why, "there is no time zone database; install the Debian package tzdata");
    ck_assert(zone_read(&arena, &scratch, SLICE("UTC"), &zone, &why));
    ck_assert_uint_eq(zone.count, 0);
    arena_free(&scratch);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("zone");
    TCase *tcase = tcase_create("zone");

    tcase_add_unchecked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, a_truncated_file_is_refused);
    tcase_add_test(tcase, a_corrupt_file_is_harmless);
    tcase_add_test(tcase, rules_after_the_last_transition);
    tcase_add_test(tcase, zone_names);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
