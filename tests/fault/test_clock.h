/* test_clock.h - a clock that tests set. Linking test_clock.c into a test program replaces
 * clock_gettime(2), epoll_wait(2) and timerfd_create(2) for the program, for libweir.a and for
 * libevent. */
#ifndef WEIR_TESTS_TEST_CLOCK_H
#define WEIR_TESTS_TEST_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

/* Advances the monotonic and the wall clock. */
void test_clock_advance_us(uint64_t us);

/* While on, only the functions of this file advance the monotonic clock. For steps that must end
 * before a time has passed, on a busy machine too. */
void test_clock_stand(bool on);

/* Sets the wall clock, which then stands. The monotonic clock goes on. */
void test_clock_set_wall_us(uint64_t us);

/* While on, an event loop without events does not wait for its next timer: the clock advances to
 * it. Only for tests whose peers run in the same event loop, so that no event can be on its way.
 * Turn it on before weir's objects are created: their timers then need no timerfd. */
void test_clock_skip_waits(bool on);

#endif
