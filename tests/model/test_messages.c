#include "rig.h"
#include "suites.h"

#include <stdio.h>
#include <string.h>

START_TEST(a_return_comes_before_its_confirm)
{
    rig *r = rig_new("4.3");
    rig_publish_raw(r, "", "nowhere", "m", NULL, 1);
    const amqp_basic_return_t *returned = rig_expect(r, AMQP_BASIC_RETURN_METHOD);
    ck_assert_int_eq(returned->reply_code, 312);
    model_sent(r->link, 7 + 14 + 1 + 7 + 1 + 1); /* its content: a header and one octet */
    rig_expect(r, AMQP_BASIC_ACK_METHOD);
    rig_expect_nothing(r);
    rig_free(r);
}
END_TEST

START_TEST(a_full_queue_that_rejects_nacks)
{
    static const rig_entry arguments[] = {{"x-max-length", NULL, 1}, {"x-overflow", "reject-publish", 0}};
    rig *r = rig_new("4.3");
    rig_declare(r, "q", "classic", arguments, 2);
    rig_publish(r, "", "q", "first", NULL);
    rig_publish_raw(r, "", "q", "second", NULL, 0);
    const amqp_basic_nack_t *nack = rig_expect(r, AMQP_BASIC_NACK_METHOD);
    ck_assert_uint_eq(nack->delivery_tag, 2);
    ck_assert_uint_eq(rig_depth(r, "q"), 1);
    rig_free(r);
}
END_TEST

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

START_TEST(a_message_waits_behind_one_with_a_longer_ttl)
{
    static const rig_entry arguments[] = {{"x-dead-letter-exchange", "", 0}, {"x-dead-letter-routing-key", "dead", 0}};
    static const char *const types[] = {"classic", "quorum"};
    rig *r = rig_new("4.3");
    rig_declare(r, "dead", "classic", NULL, 0);
    rig_declare(r, "q", types[_i], arguments, 2);
    rig_publish(r, "", "q", "long", "500");
    rig_publish(r, "", "q", "short", "100");
    ck_assert_int_eq(model_next_ms(r->broker), 500);
    rig_advance(r, 499);
    rig_get(r, "dead", NULL);
    rig_advance(r, 1);
    rig_get(r, "dead", "long");
    rig_get(r, "dead", "short");
    rig_free(r);
}
END_TEST

START_TEST(an_invalid_expiration_closes_the_channel)
{
    static const struct {
        const char *expiration, *text;
    } rows[] = {{"abc", "no_integer"},
                {"", "no_integer"},
                {"1.5", "{leftover_string,\".5\"}"},
                {"-1", "{value_negative,-1}"},
                {"315360000001", "{value_too_large,315360000001}"}};
    rig *r = rig_new("4.0");
    rig_declare(r, "q", "classic", NULL, 0);
    char text[256];
    bh__buffer list = {.data = NULL};
    const char *expiration = rows[_i].expiration;
    ck_assert(bh__buffer_reserve(&list, 64));
    bh__put_number(&list, 0x0100, 2);
    bh__put_counted(&list, bh_str(expiration), 1);
    snprintf(text, sizeof text, "PRECONDITION_FAILED - invalid expiration '%s': %s", expiration, rows[_i].text);
    rig_publish_raw(r, "", "q", "m", &list, 0);
    rig_expect_close(r, 406, text);
    bh__buffer_free(&list);
    rig_free(r);
}
END_TEST

START_TEST(prefetch_holds_back_what_is_beyond_it)
{
    rig *r = rig_new("4.3");
    rig_declare(r, "q", "quorum", NULL, 0);
    rig_publish(r, "", "q", "a", NULL);
    rig_publish(r, "", "q", "b", NULL);
    rig_publish(r, "", "q", "c", NULL);
    rig_consume(r, "q", 2);
    rig_expect_delivery(r, "a");
    rig_expect_delivery(r, "b");
    rig_expect_nothing(r);
    rig_ack(r, 1);
    rig_expect_delivery(r, "c");
    ck_assert(!model_is_idle(r->broker));
    rig_ack(r, 2);
    rig_ack(r, 3);
    ck_assert(model_is_idle(r->broker));
    rig_ack(r, 3);
    rig_expect_close(r, 406, "PRECONDITION_FAILED - unknown delivery tag 3");
    rig_free(r);
}
END_TEST

START_TEST(what_returns_to_a_classic_queue_is_at_its_old_place)
{
    rig *r = rig_new("4.3");
    rig_declare(r, "q", "classic", NULL, 0);
    for (const char *body = "a\0b\0c\0"; *body; body += 2)
        rig_publish(r, "", "q", body, NULL);
    rig_get(r, "q", "a");
    rig_get(r, "q", "b");
    rig_nack(r, 2, 1);
    rig_nack(r, 1, 1);
    rig_get(r, "q", "a");
    ck_assert(r->is_redelivered);
    rig_get(r, "q", "b");
    rig_get(r, "q", "c");
    ck_assert(!r->is_redelivered);
    rig_free(r);
}
END_TEST

/* The counts after one return, by version: nack, reject, lost channel. */
START_TEST(deliveries_are_counted_as_the_version_does)
{
    static const struct {
        const char *version;
        int64_t delivery[3], acquired[3];
    } rows[] = {{"3.10", {1, 1, 1}, {-1, -1, -1}}, {"4.0", {1, 1, 1}, {-1, -1, -1}}, {"4.3", {-1, 1, 1}, {1, 1, 1}}};
    static const rig_entry limit[] = {{"x-delivery-limit", NULL, 5}};
    for (int how = 0; how < 3; how++) {
        rig *r = rig_new(rows[_i].version);
        rig_declare(r, "q", "quorum", limit, 1);
        rig_publish(r, "", "q", "m", NULL);
        rig_get(r, "q", "m");
        ck_assert(!r->is_redelivered);
        if (how == 0)
            rig_nack(r, r->tag, 1);
        else if (how == 1)
            rig_reject(r, r->tag, 1);
        amqp_channel_close_t close = {.reply_code = 200, .reply_text = amqp_empty_bytes};
        if (how == 2) {
            rig_send(r, 1, AMQP_CHANNEL_CLOSE_METHOD, &close);
            rig_expect(r, AMQP_CHANNEL_CLOSE_OK_METHOD);
            rig_open_channel(r, 1);
        }
        rig_get(r, "q", "m");
        ck_assert(r->is_redelivered);
        ck_assert_int_eq(rig_header(r, "x-delivery-count"), rows[_i].delivery[how]);
        ck_assert_int_eq(rig_header(r, "x-acquired-count"), rows[_i].acquired[how]);
        rig_free(r);
    }
}
END_TEST

START_TEST(a_transaction_counts_at_its_commit)
{
    amqp_tx_select_t select = {0};
    amqp_tx_commit_t commit = {0};
    amqp_tx_rollback_t rollback = {0};
    amqp_channel_close_t close = {.reply_text = amqp_empty_bytes};
    amqp_channel_open_t open = {.out_of_band = amqp_empty_bytes};
    rig *r = rig_new("4.3");
    rig_declare(r, "q", "classic", NULL, 0);
    rig_send(r, 1, AMQP_CHANNEL_CLOSE_METHOD, &close); /* it was in confirm mode */
    rig_expect(r, AMQP_CHANNEL_CLOSE_OK_METHOD);
    rig_send(r, 1, AMQP_CHANNEL_OPEN_METHOD, &open);
    rig_expect(r, AMQP_CHANNEL_OPEN_OK_METHOD);
    rig_send(r, 1, AMQP_TX_SELECT_METHOD, &select);
    rig_expect(r, AMQP_TX_SELECT_OK_METHOD);
    rig_publish_raw(r, "", "q", "dropped", NULL, 0);
    rig_send(r, 1, AMQP_TX_ROLLBACK_METHOD, &rollback);
    rig_expect(r, AMQP_TX_ROLLBACK_OK_METHOD);
    rig_publish_raw(r, "", "q", "m", NULL, 0);
    ck_assert_uint_eq(rig_depth(r, "q"), 0);
    rig_send(r, 1, AMQP_TX_COMMIT_METHOD, &commit);
    rig_expect(r, AMQP_TX_COMMIT_OK_METHOD);
    rig_get(r, "q", "m");
    rig_nack(r, r->tag, 1);
    ck_assert_uint_eq(rig_depth(r, "q"), 0);
    rig_send(r, 1, AMQP_TX_COMMIT_METHOD, &commit);
    rig_expect(r, AMQP_TX_COMMIT_OK_METHOD);
    ck_assert_uint_eq(rig_depth(r, "q"), 1);
    rig_publish_raw(r, "", "q", "pending", NULL, 0);
    rig_free(r);
}
END_TEST

START_TEST(a_rejected_message_waits_longer_each_time_on_4_3)
{
    static const rig_entry arguments[] = {
        {"x-delayed-retry-type", "failed", 0}, {"x-delayed-retry-min", NULL, 100}, {"x-delayed-retry-max", NULL, 250}};
    static const int64_t delays_ms[] = {100, 200, 250, 250};
    rig *r = rig_new("4.3");
    rig_declare(r, "q", "quorum", arguments, 3);
    rig_publish(r, "", "q", "m", NULL);
    rig_get(r, "q", "m");
    for (size_t i = 0; i < 4; i++) {
        rig_reject(r, r->tag, 1);
        ck_assert_int_eq(model_next_ms(r->broker) - model_now_ms(r->broker), delays_ms[i]);
        rig_advance(r, delays_ms[i] - 1);
        rig_get(r, "q", NULL);
        rig_advance(r, 1);
        rig_get(r, "q", "m");
    }
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
    tcase_add_test(tests, a_return_comes_before_its_confirm);
    tcase_add_test(tests, a_full_queue_that_rejects_nacks);
    tcase_add_test(tests, late_confirms_cover_each_message_once);
    tcase_add_loop_test(tests, a_message_waits_behind_one_with_a_longer_ttl, 0, 2);
    tcase_add_loop_test(tests, an_invalid_expiration_closes_the_channel, 0, 5);
    tcase_add_test(tests, prefetch_holds_back_what_is_beyond_it);
    tcase_add_test(tests, what_returns_to_a_classic_queue_is_at_its_old_place);
    tcase_add_loop_test(tests, deliveries_are_counted_as_the_version_does, 0, 3);
    tcase_add_test(tests, a_transaction_counts_at_its_commit);
    tcase_add_test(tests, a_rejected_message_waits_longer_each_time_on_4_3);
    tcase_add_loop_test(tests, a_delivery_that_is_held_too_long_ends_as_the_version_does, 0, 2);
    suite_add_tcase(suite, tests);
    return suite;
}
