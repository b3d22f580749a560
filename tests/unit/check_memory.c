/* How much memory weir may use, and the count of what its buffers use. */
#include <check.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/available_memory.h"
#include "net/iobuf.h"
#include "run_suite.h"

/* ---- available_memory() ---------------------------------------------------------------------- */

static char directory[] = "/tmp/weir-check-memory-XXXXXX";

static const char *path_of(const char *name)
{
    static char path[512];

    snprintf(path, sizeof path, "%s/%s", directory, name);
    return path;
}

static void write_file(const char *name, const char *text)
{
    FILE *file = fopen(path_of(name), "w");

    ck_assert_ptr_nonnull(file);
    fputs(text, file);
    fclose(file);
}

static void make_directory(const char *name)
{
    ck_assert_int_eq(mkdir(path_of(name), 0700), 0);
}

static void start(void)
{
    ck_assert_ptr_nonnull(mkdtemp(directory));
    make_directory("memory");
    make_directory("memory/web");
    make_directory("web");
    make_directory("web/weir");
}

static void stop(void)
{
    static const char *const names[] = {"groups",
                                        "memory.max",
                                        "web/memory.max",
                                        "web/weir/memory.max",
                                        "memory/memory.limit_in_bytes",
                                        "memory/web/memory.limit_in_bytes"};

    for (unsigned i = 0; i < COUNT_OF(names); i++)
        unlink(path_of(names[i]));
    rmdir(path_of("web/weir"));
    rmdir(path_of("web"));
    rmdir(path_of("memory/web"));
    rmdir(path_of("memory"));
    rmdir(directory);
    strcpy(directory + strlen(directory) - 6, "XXXXXX");
}

static uint64_t available(void)
{
    char groups[512];

    strcpy(groups, path_of("groups"));
    return available_memory(groups, directory);
}

START_TEST(without_a_limit_it_is_the_memory_of_the_machine)
{
    uint64_t machine = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);

    ck_assert_uint_eq(available(), machine); /* no such files */
    write_file("groups", "0::/web/weir\n");
    write_file("web/weir/memory.max", "max\n");
    ck_assert_uint_eq(available(), machine);
    write_file("groups", "not\na: list\n");
    ck_assert_uint_eq(available(), machine);
}
END_TEST

START_TEST(the_lowest_limit_of_a_group_and_its_parents_applies)
{
    write_file("groups", "0::/web/weir\n");
    write_file("web/weir/memory.max", "80000000\n");
    ck_assert_uint_eq(available(), 80000000);
    write_file("web/memory.max", "70000000\n");
    ck_assert_uint_eq(available(), 70000000);
    write_file("memory.max", "60000000\n");
    ck_assert_uint_eq(available(), 60000000);
    write_file("groups", "0::/\n"); /* in a container */
    ck_assert_uint_eq(available(), 60000000);
    write_file("groups", "0::/system.slice/of-the-host\n");
    ck_assert_uint_eq(available(), 60000000);
}
END_TEST

START_TEST(version_1_has_a_directory_for_memory)
{
    write_file("groups", "12:cpu,cpuacct:/web\n5:hugetlb,memory:/web\n0::/\n");
    write_file("memory/web/memory.limit_in_bytes", "50000000\n");
    write_file("memory/memory.limit_in_bytes", "9223372036854771712\n");
    ck_assert_uint_eq(available(), 50000000);
    write_file("groups", "12:memory_other,cpu:/web\n");
    ck_assert_uint_gt(available(), 50000000);
}
END_TEST

/* ---- buffers --------------------------------------------------------------------------------- */

enum { LIMIT = 10 * (IOBUF_LARGE + 64), TOO_MANY = 20 };

START_TEST(buffers_are_counted_and_limited)
{
    struct iobuf_pool pool = {0};
    struct iobuf *buffers[TOO_MANY] = {NULL};
    unsigned n = 0;

    memory_set_limit(LIMIT);
    ck_assert_uint_eq(memory_level(), MEMORY_LOW);
    while (n < TOO_MANY && (buffers[n] = iobuf_get(&pool, IOBUF_LARGE)))
        n++;
    ck_assert_uint_ge(n, 11); /* 112.5 % */
    ck_assert_uint_le(n, 12);
    ck_assert_uint_eq(memory_level(), MEMORY_FULL);
    for (unsigned i = 0; i < n; i++)
        iobuf_put(&pool, &buffers[i]);
    ck_assert_uint_eq(memory_level(), MEMORY_LOW);
    iobuf_pool_clear(&pool);
    ck_assert_uint_eq(memory_used(), 0);
}
END_TEST

START_TEST(buffers_that_are_not_needed_for_two_periods_are_freed)
{
    struct iobuf_pool pool = {0};
    struct iobuf *first = iobuf_get(&pool, 1), *second = iobuf_get(&pool, 1);

    memory_set_limit(UINT64_MAX);
    iobuf_put(&pool, &first);
    iobuf_put(&pool, &second);
    iobuf_pool_trim(&pool);
    ck_assert_uint_eq(pool.free[0].count, 2);
    first = iobuf_get(&pool, 1);
    iobuf_put(&pool, &first);
    iobuf_pool_trim(&pool); /* one of them was needed */
    ck_assert_uint_eq(pool.free[0].count, 1);
    iobuf_pool_trim(&pool);
    ck_assert_uint_eq(pool.free[0].count, 0);
    iobuf_pool_clear(&pool);
    ck_assert_uint_eq(memory_used(), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("memory");
    TCase *available_case = tcase_create("available"), *buffers = tcase_create("buffers");

    tcase_add_checked_fixture(available_case, start, stop);
    tcase_add_test(available_case, without_a_limit_it_is_the_memory_of_the_machine);
    tcase_add_test(available_case, the_lowest_limit_of_a_group_and_its_parents_applies);
    tcase_add_test(available_case, version_1_has_a_directory_for_memory);
    tcase_add_test(buffers, buffers_are_counted_and_limited);
    tcase_add_test(buffers, buffers_that_are_not_needed_for_two_periods_are_freed);
    suite_add_tcase(suite, available_case);
    suite_add_tcase(suite, buffers);
    return run_suite(suite);
}
