#include "rig.h"
#include "suites.h"

#include <string.h>

START_TEST(a_kill_keeps_what_is_durable)
{
    static const unsigned char persistent[] = {0x10, 0x00, 2};
    bh__buffer list = {.data = (char *)(uintptr_t)persistent, .end = sizeof persistent};
    rig *r = rig_new("4.3");
    rig_declare(r, "classic", "classic", NULL, 0);
    rig_declare(r, "quorum", "quorum", NULL, 0);
    rig_publish(r, "", "classic", "transient", NULL);
    rig_publish_raw(r, "", "classic", "kept", &list, 0);
    rig_expect(r, AMQP_BASIC_ACK_METHOD);
    rig_publish(r, "", "quorum", "kept", NULL);
    rig_get(r, "quorum", "kept"); /* unacknowledged */
    rig_control(r, "kill");
    ck_assert(model_is_closing(r->link));
    rig_expect_nothing(r);
    model_disconnect(r->link);
    ck_assert_ptr_null(model_connect(r->broker));
    rig_control(r, "start");
    r->link = model_connect(r->broker);
    rig_login(r, 1);
    rig_get(r, "classic", "kept");
    rig_get(r, "classic", NULL);
    rig_get(r, "quorum", "kept");
    ck_assert(r->is_redelivered);
    rig_free(r);
}
END_TEST

START_TEST(a_policy_dead_letters_and_its_end_stops_that)
{
    rig *r = rig_new("4.3");
    rig_declare(r, "dead", "classic", NULL, 0);
    rig_declare(r, "q", "classic", NULL, 0);
    rig_control(r,
                "policy / p '^q$' queues 1 '{\"dead-letter-exchange\": \"\", \"dead-letter-routing-key\": \"dead\"}'");
    rig_publish(r, "", "q", "a", NULL);
    rig_get(r, "q", "a");
    rig_nack(r, r->tag, 0);
    rig_get(r, "dead", "a");
    rig_control(r, "policy delete / p");
    rig_publish(r, "", "q", "b", NULL);
    rig_get(r, "q", "b");
    rig_nack(r, r->tag, 0);
    rig_get(r, "dead", NULL);
    rig_free(r);
}
END_TEST

START_TEST(all_queues_can_be_deleted)
{
    rig *r = rig_new("4.3");
    rig_declare(r, "a", "classic", NULL, 0);
    rig_declare(r, "b", "quorum", NULL, 0);
    rig_control(r, "delete queues /");
    rig_send_declare(r, "a", "quorum", NULL, 0); /* no clash */
    rig_expect(r, AMQP_QUEUE_DECLARE_OK_METHOD);
    rig_control(r, "delete queues");
    bh__report answer = {.status = BH_OK};
    ck_assert_int_eq(model_control(r->broker, "list queues", &answer), BH_OK);
    ck_assert_uint_eq(answer.size, 0);
    bh__report_free(&answer);
    rig_free(r);
}
END_TEST

START_TEST(the_consumer_timeout_can_be_shortened)
{
    rig *r = rig_new("4.0");
    rig_declare(r, "q", "quorum", NULL, 0);
    rig_control(r, "consumer-timeout 3000");
    rig_publish(r, "", "q", "m", NULL);
    rig_get(r, "q", "m");
    rig_advance(r, 2999);
    rig_expect_nothing(r);
    rig_advance(r, 1);
    rig_expect(r, AMQP_CHANNEL_CLOSE_METHOD);
    rig_free(r);
}
END_TEST

START_TEST(a_user_logs_in_until_deleted)
{
    rig *r = rig_new("4.3");
    rig_control(r, "user other secret");
    rig_control(r, "user tags other impersonator administrator");
    rig_control(r, "permissions / other .* .* .*");
    rig_control(r, "user delete other");
    bh__report answer = {.status = BH_OK};
    ck_assert_int_eq(model_control(r->broker, "user tags other x", &answer), BH_ERR_MISSING);
    bh__report_free(&answer);
    rig_control(r, "user delete guest");
    rig_expect_close(r, 320, "CONNECTION_FORCED - user 'guest' was deleted");
    rig_free(r);
}
END_TEST

START_TEST(wrong_commands_are_refused)
{
    static const char *const lines[] = {"",
                                        "nonsense",
                                        "close",
                                        "close 77",
                                        "alarm maybe",
                                        "policy / p ( queues 1 {}",
                                        "advance -1",
                                        "list nothing",
                                        "delete queue / none",
                                        "vhost delete none",
                                        "policy / p x queues 1 '{\"a\": }'",
                                        "'open",
                                        "list queues none",
                                        "permissions / none . . ."};
    rig *r = rig_new("4.3");
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        bh__report answer = {.status = BH_OK};
        ck_assert_msg(model_control(r->broker, lines[i], &answer) != BH_OK, "%s", lines[i]);
        ck_assert_uint_gt(answer.size, 0);
        bh__report_free(&answer);
    }
    rig_free(r);
}
END_TEST

START_TEST(lists_have_a_line_each)
{
    bh__report answer = {.status = BH_OK};
    rig *r = rig_new("4.3");
    rig_declare(r, "q", "quorum", NULL, 0);
    rig_publish(r, "", "q", "m", NULL);
    ck_assert_int_eq(model_control(r->broker, "list queues", &answer), BH_OK);
    ck_assert_str_eq(bh__report_text(&answer).data, "q\tquorum\t1\t0\t0\t0\n");
    bh__report_clear(&answer);
    ck_assert_int_eq(model_control(r->broker, "list connections", &answer), BH_OK);
    ck_assert_str_eq(bh__report_text(&answer).data, "1\t\trunning\n");
    bh__report_free(&answer);
    rig_free(r);
}
END_TEST

Suite *suite_operator(void)
{
    Suite *suite = suite_create("operator");
    TCase *tests = tcase_create("operator");
    tcase_add_test(tests, a_kill_keeps_what_is_durable);
    tcase_add_test(tests, a_policy_dead_letters_and_its_end_stops_that);
    tcase_add_test(tests, all_queues_can_be_deleted);
    tcase_add_test(tests, the_consumer_timeout_can_be_shortened);
    tcase_add_test(tests, a_user_logs_in_until_deleted);
    tcase_add_test(tests, wrong_commands_are_refused);
    tcase_add_test(tests, lists_have_a_line_each);
    suite_add_tcase(suite, tests);
    return suite;
}
