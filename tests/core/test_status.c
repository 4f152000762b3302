#include "suites.h"

#include <backhop/adapter.h>

START_TEST(every_status_has_a_name_and_a_sentence)
{
#define SAME_STATUS(name, code, sentence)                                                                              \
    ck_assert_str_eq(bh_status_name(name).data, #name);                                                                \
    ck_assert_uint_eq(bh_status_name(name).size, strlen(#name));                                                       \
    ck_assert_str_eq(bh_status_text(name).data, sentence);                                                             \
    ck_assert_uint_eq(bh_status_text(name).size, strlen(sentence));
    BH_STATUS_LIST(SAME_STATUS)
}
END_TEST

START_TEST(the_codes_have_no_gap)
{
    for (int code = BH_STATUS_LAST + 1; code <= 0; code++)
        ck_assert_msg(bh_status_name(code).size > 0, "code %d has no name", code);
}
END_TEST

START_TEST(a_fork_has_a_status_that_tells_what_to_do)
{
    ck_assert_int_eq(BH_ERR_FORKED, -20);
    ck_assert_str_eq(bh_status_name(-20).data, "BH_ERR_FORKED");
    ck_assert_ptr_nonnull(strstr(bh_status_text(-20).data, "make a new one in the child process"));
}
END_TEST

START_TEST(a_foreign_policy_has_a_status_that_tells_what_to_do)
{
    ck_assert_str_eq(bh_status_name(BH_ERR_FOREIGN_POLICY).data, "BH_ERR_FOREIGN_POLICY");
    ck_assert_ptr_nonnull(strstr(bh_status_text(BH_ERR_FOREIGN_POLICY).data, "build it for the policy"));
}
END_TEST

START_TEST(a_number_that_is_no_status_has_no_name_and_a_sentence)
{
    const int numbers[] = {1, BH_STATUS_LAST, BH_STATUS_LAST - 1, 2147483647, -2147483647 - 1};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        ck_assert_str_eq(bh_status_name(numbers[i]).data, "");
        ck_assert_uint_eq(bh_status_name(numbers[i]).size, 0);
        ck_assert_msg(bh_status_text(numbers[i]).size > 0, "%d has no sentence", numbers[i]);
    }
}
END_TEST

START_TEST(the_version_is_a_text)
{
    ck_assert_ptr_nonnull(bh_version());
    ck_assert_uint_gt(strlen(bh_version()), 0);
}
END_TEST

Suite *suite_status(void)
{
    Suite *suite = suite_create("status");
    TCase *calls = tcase_create("calls");
    tcase_add_test(calls, every_status_has_a_name_and_a_sentence);
    tcase_add_test(calls, the_codes_have_no_gap);
    tcase_add_test(calls, a_fork_has_a_status_that_tells_what_to_do);
    tcase_add_test(calls, a_foreign_policy_has_a_status_that_tells_what_to_do);
    tcase_add_test(calls, a_number_that_is_no_status_has_no_name_and_a_sentence);
    tcase_add_test(calls, the_version_is_a_text);
    suite_add_tcase(suite, calls);
    return suite;
}
