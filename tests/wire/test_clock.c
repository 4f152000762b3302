#include "suites.h"

#include "worker/wire/clock.h"

#include <string.h>
#include <time.h>

START_TEST(the_monotonic_clock_never_goes_back)
{
    int64_t before = bh__monotonic_ms();
    for (int i = 0; i < 1000; i++) {
        int64_t now = bh__monotonic_ms();
        ck_assert_int_ge(now, before);
        before = now;
    }
}
END_TEST

START_TEST(the_epoch_is_that_of_the_system_in_milliseconds)
{
    int64_t before_s = time(NULL), now_ms = bh__epoch_ms(), after_s = time(NULL);
    ck_assert_int_ge(now_ms, (before_s - 1) * 1000); /* time() may be a tick behind */
    ck_assert_int_lt(now_ms, (after_s + 2) * 1000);
}
END_TEST

START_TEST(random_bytes_differ_and_more_than_256_are_refused)
{
    char first[257] = "", second[256] = "";
    ck_assert_int_eq(bh__random(first, 256), 1);
    ck_assert_int_eq(bh__random(second, 256), 1);
    ck_assert_mem_ne(first, second, 256);
    ck_assert_int_eq(bh__random(first, 257), 0);
    ck_assert_int_eq(bh__random(first, 0), 1);
}
END_TEST

Suite *suite_clock(void)
{
    Suite *suite = suite_create("clock");
    TCase *all = tcase_create("clock");
    tcase_add_test(all, the_monotonic_clock_never_goes_back);
    tcase_add_test(all, the_epoch_is_that_of_the_system_in_milliseconds);
    tcase_add_test(all, random_bytes_differ_and_more_than_256_are_refused);
    suite_add_tcase(suite, all);
    return suite;
}
