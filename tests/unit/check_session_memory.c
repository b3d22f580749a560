/* The memory of libnghttp2's sessions: allocations in a slot, and on the heap. */
#include <check.h>
#include <string.h>

#include "http2/session_memory.h"
#include "run_suite.h"

enum { SESSION = 2928, BUFFER = 16394, COUNT = 3 * SLOTS_PER_BLOCK };

static struct session_slots slots;
static struct session_memory memory[COUNT];

static void start(void)
{
    session_slots_begin(&slots);
}

static void stop(void)
{
    session_slots_end(&slots);
}

static void *take(struct session_memory *m, size_t size)
{
    return m->functions.realloc(NULL, size, m);
}

static void give(struct session_memory *m, void *pointer)
{
    m->functions.free(pointer, m);
}

START_TEST(the_session_and_one_frame_buffer_are_in_the_slot)
{
    struct session_memory *m = memory;

    session_memory_begin(m, &slots);
    char *session = m->functions.calloc(1, SESSION, m), *table = m->functions.calloc(1, 1024, m);
    char *small = take(m, 100), *first = take(m, BUFFER), *second = take(m, BUFFER);
    ck_assert_ptr_eq(session, m->slot);
    ck_assert_ptr_eq(first, m->slot + SESSION);
    ck_assert(session[0] == 0 && session[SESSION - 1] == 0);
    memset(first, 'x', BUFFER);
    memset(second, 'y', BUFFER);
    memset(table, 'z', 1024);
    memset(small, 'z', 100);
    give(m, second);
    give(m, first);
    ck_assert_ptr_eq(take(m, BUFFER), first); /* the slot is free again */
    give(m, first);
    give(m, small);
    give(m, table);
    give(m, session);
    session_memory_end(m);
}
END_TEST

START_TEST(a_frame_buffer_that_grows_leaves_the_slot)
{
    struct session_memory *m = memory;

    session_memory_begin(m, &slots);
    void *session = m->functions.calloc(1, SESSION, m);
    char *buffer = take(m, BUFFER);
    memset(buffer, 'x', BUFFER);
    ck_assert_ptr_eq(m->functions.realloc(buffer, BUFFER + 100, m), buffer); /* the slot has room */
    char *larger = m->functions.realloc(buffer, 100000, m);
    ck_assert_ptr_ne(larger, buffer);
    ck_assert(larger[0] == 'x' && larger[BUFFER - 1] == 'x');
    ck_assert_ptr_eq(take(m, BUFFER), buffer);
    give(m, larger);
    give(m, buffer);
    give(m, session);
    session_memory_end(m);
}
END_TEST

START_TEST(no_two_sessions_share_a_slot)
{
    for (unsigned round = 0; round < 3; round++) {
        for (unsigned i = 0; i < COUNT; i++) {
            if (round > 0 && i % 3 != 0)
                continue; /* still allocated */
            session_memory_begin(&memory[i], &slots);
            ck_assert_ptr_nonnull(memory[i].slot);
            memset(memory[i].slot, (int)(i % 251), SLOT_SIZE);
        }
        for (unsigned i = 0; i < COUNT; i++) {
            unsigned char expected = (unsigned char)(i % 251);
            ck_assert(memcmp(memory[i].slot, &expected, 1) == 0);
            ck_assert(memcmp(memory[i].slot + SLOT_SIZE - 1, &expected, 1) == 0);
        }
        for (unsigned i = 0; i < COUNT; i += 3)
            session_memory_end(&memory[i]);
    }
    for (unsigned i = 0; i < COUNT; i++)
        session_memory_end(&memory[i]);      /* for some the second time, which has no effect */
    ck_assert_uint_eq(slots.block_count, 1); /* one is kept */
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("session memory");
    TCase *tests = tcase_create("session memory");
    tcase_add_checked_fixture(tests, start, stop);
    tcase_add_test(tests, the_session_and_one_frame_buffer_are_in_the_slot);
    tcase_add_test(tests, a_frame_buffer_that_grows_leaves_the_slot);
    tcase_add_test(tests, no_two_sessions_share_a_slot);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
