#include "suites.h"

#include <backhop/adapter/replay.h>

START_TEST(reads_all_messages_of_the_parked_queue)
{
    ck_assert_int_eq(bh_replay_limit(0, 0), 1);
    ck_assert_int_eq(bh_replay_limit(9999, 0), 10000);
    ck_assert_int_eq(bh_replay_limit(1000000, 0), 1000001);
}
END_TEST

START_TEST(reads_at_most_ten_thousand_messages_of_a_shared_queue)
{
    ck_assert_int_eq(bh_replay_limit(0, 1), 1);
    ck_assert_int_eq(bh_replay_limit(9999, 1), 10000);
    ck_assert_int_eq(bh_replay_limit(10000, 1), 10000);
    ck_assert_int_eq(bh_replay_limit(INT64_MAX, 1), 10000);
}
END_TEST

START_TEST(skips_a_message_that_is_refused_itself)
{
    for (int status = BH_STATUS_LAST + 1; status <= 0; status++)
        ck_assert_int_eq(bh_replay_goes_on(status, 0),
                         status == BH_ERR_FRAME || status == BH_ERR_CONTENT || status == BH_ERR_CHANNEL);
}
END_TEST

START_TEST(skips_a_shared_queue_that_it_may_not_read)
{
    for (int status = BH_STATUS_LAST + 1; status <= 0; status++)
        ck_assert_int_eq(bh_replay_goes_on(status, 1), status == BH_ERR_MISSING || status == BH_ERR_ACCESS);
}
END_TEST

START_TEST(F1_messages_of_others_are_read_again_the_less_often_the_more_there_are)
{
    ck_assert_int_eq(bh_replay_pause_ms(0), 30000);
    ck_assert_int_eq(bh_replay_pause_ms(83), 30000);
    ck_assert_int_eq(bh_replay_pause_ms(1000), 360000);
    ck_assert_int_eq(bh_replay_pause_ms(BH_REPLAY_MOST_SHARED), 3600000);
    ck_assert_int_eq(bh_replay_pause_ms(INT64_MAX), 3600000);
}
END_TEST

START_TEST(F1_a_queue_is_read_once_retries_come_back)
{
    for (int mode = BH_MODE_CREATE; mode <= BH_MODE_NONE; mode++)
        for (int status = BH_STATUS_LAST + 1; status <= 0; status++)
            ck_assert_int_eq(bh_replay_after_look((bh_mode)mode, status),
                             (status == BH_OK && mode != BH_MODE_NONE) ||
                                 (status == BH_ERR_MISSING && mode == BH_MODE_CREATE));
    ck_assert_ptr_null(strstr(bh_replay_unroutable_text(BH_MODE_CREATE).data, "declare"));
    ck_assert_ptr_nonnull(strstr(bh_replay_unroutable_text(BH_MODE_VERIFY).data, "declare the topology"));
}
END_TEST

Suite *suite_replay(void)
{
    Suite *suite = suite_create("replay");
    TCase *calls = tcase_create("calls");
    tcase_add_test(calls, reads_all_messages_of_the_parked_queue);
    tcase_add_test(calls, reads_at_most_ten_thousand_messages_of_a_shared_queue);
    tcase_add_test(calls, skips_a_message_that_is_refused_itself);
    tcase_add_test(calls, skips_a_shared_queue_that_it_may_not_read);
    tcase_add_test(calls, F1_messages_of_others_are_read_again_the_less_often_the_more_there_are);
    tcase_add_test(calls, F1_a_queue_is_read_once_retries_come_back);
    suite_add_tcase(suite, calls);
    return suite;
}
