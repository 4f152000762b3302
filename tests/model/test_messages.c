#include "rig.h"
#include "suites.h"

#include <stdio.h>
#include <string.h>

/* With choices, confirms come late, and several by one. Each number is confirmed once. */
START_TEST(late_confirms_cover_each_message_once)
{
    enum { COUNT = 60 };
    unsigned char tape[4 * COUNT];
    int is_confirmed[COUNT + 1] = {0}, open = COUNT, multiples = 0;
    for (size_t i = 0; i < sizeof tape; i++)
        tape[i] = (unsigned char)(i * 37 + i / 5);
    rig *r = rig_with_tape("4.3", tape, sizeof tape);
    rig_declare(r, "q", "quorum", NULL, 0);
    for (int i = 0; i < COUNT; i++)
        rig_publish_raw(r, "", "q", "m", NULL, 0);
    for (int i = 0; i < 20; i++) {
        rig_advance(r, 1);
        while (model_output(r->link).size > 0) {
            const amqp_basic_ack_t *ack = rig_expect(r, AMQP_BASIC_ACK_METHOD);
            multiples += ack->multiple;
            for (uint64_t number = ack->multiple ? 1 : ack->delivery_tag; number <= ack->delivery_tag; number++) {
                ck_assert(ack->multiple || !is_confirmed[number]);
                open -= !is_confirmed[number];
                is_confirmed[number] = 1;
            }
        }
    }
    ck_assert_int_eq(open, 0);
    ck_assert_int_gt(multiples, 0);
    ck_assert(model_is_idle(r->broker));
    rig_free(r);
}
END_TEST

START_TEST(a_delivery_that_is_held_too_long_ends_as_the_version_does)
{
    rig *r = rig_new(_i ? "4.3" : "4.0");
    rig_declare(r, "q", "quorum", NULL, 0);
    rig_consume(r, "q", 10);
    rig_publish_raw(r, "", "q", "m", NULL, 0);
    rig_expect(r, AMQP_BASIC_ACK_METHOD);
    rig_expect_delivery(r, "m");
    rig_advance(r, 1800000);
    if (_i == 0) {
        rig_expect_close(r, 406,
                         "PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out. Timeout value used: "
                         "1800000 ms. This timeout value can be configured, see consumers doc guide to learn more");
        ck_assert_uint_eq(rig_depth(r, "q"), 1);
    } else {
        rig_expect(r, AMQP_BASIC_CANCEL_METHOD);
        rig_expect_nothing(r);
        rig_ack(r, r->tag);
        rig_expect_delivery(r, "m"); /* it has room for it again */
    }
    rig_free(r);
}
END_TEST

Suite *suite_messages(void)
{
    Suite *suite = suite_create("messages");
    TCase *tests = tcase_create("messages");
    tcase_add_test(tests, late_confirms_cover_each_message_once);
    tcase_add_loop_test(tests, a_delivery_that_is_held_too_long_ends_as_the_version_does, 0, 2);
    suite_add_tcase(suite, tests);
    return suite;
}
