#include "setups.h"
#include "suites.h"

#include <stdio.h>
#include <string.h>

static void park(rig *r, const char *routing_key, const char *body)
{
    amqp_table_entry_t header = entry_string("tenant", body);
    amqp_basic_properties_t properties = {._flags = AMQP_BASIC_MESSAGE_ID_FLAG | AMQP_BASIC_HEADERS_FLAG |
                                                    AMQP_BASIC_TYPE_FLAG,
                                          .message_id = amqp_cstring_bytes(body),
                                          .type = amqp_cstring_bytes("cdn.purge"),
                                          .headers = {1, &header}};
    broker_publish(r->broker, r->exchange, routing_key, &properties, bh_str(body));
    rig_take(r, body);
    expect_ok(r->worker, bh_worker_settle(r->worker, BH_OUTCOME_PERMANENT, bh_str("no such zone"), 0));
    expect_bytes(bh_worker_last_reason(r->worker), "permanent");
}

static void replay(rig *r, int64_t most, int64_t expected)
{
    int64_t count = -1;
    expect_ok(r->worker, bh_worker_replay(r->worker, most, &count));
    ck_assert_int_eq(count, expected);
}

START_TEST(parked_messages_are_replayed_to_their_own_queue_alone)
{
    rig *r = setup_rig(_i);
    rig_start(r);
    const char *sibling = rig_sibling(r, "sibling", "#");
    park(r, "work.fr", "first");
    park(r, "work.de", "second");
    park(r, "work", "third");
    broker_await_depth(r->broker, r->parked, 3);
    replay(r, 1, 1);
    broker_await_depth(r->broker, r->parked, 2);
    rig_take(r, "first");
    expect_bytes(bh_worker_routing_key(r->worker), "work.fr");
    rig_succeed(r);
    replay(r, 100, 2);
    replay(r, 100, 0);
    ck_assert_int_eq(broker_depth(r->broker, r->parked), 0);

    static const char *const bodies[] = {"second", "third"}, *const keys[] = {"work.de", "work"};
    for (int i = 0; i < 2; i++) {
        rig_take(r, bodies[i]);
        ck_assert_int_eq(bh_worker_attempt(r->worker), 1);
        expect_bytes(bh_worker_exchange(r->worker), r->exchange);
        expect_bytes(bh_worker_routing_key(r->worker), keys[i]);
        expect_bytes(bh_delivery_header_string(r->delivery, bh_str("tenant")), bodies[i]);
        expect_bytes(bh_delivery_property(r->delivery, BH_PROPERTY_MESSAGE_ID), bodies[i]);
        expect_bytes(bh_delivery_property(r->delivery, BH_PROPERTY_TYPE), "cdn.purge");
        static const char *const cleared[] = {"backhop-first-failure", "backhop-delay", "backhop-error",
                                              "backhop-parked"};
        ck_assert_int_eq(bh_delivery_header_int(r->delivery, bh_str("backhop-attempts")), 0);
        for (size_t j = 0; j < sizeof cleared / sizeof cleared[0]; j++)
            ck_assert_msg(bh_delivery_header_type(r->delivery, bh_str(cleared[j])) == 0, "%s is left", cleared[j]);
        rig_succeed(r);
    }
    ck_assert_int_eq(broker_depth(r->broker, sibling), 3);
    rig_free(r);
}
END_TEST

START_TEST(a_replayed_message_has_all_its_attempts_again)
{
    rig *r = setup_rig(_i);
    bh_policy_set_max_attempts(r->policy, 2);
    rig_start(r);
    rig_publish(r, "work.a", "first");
    for (int round = 0; round < 2; round++) {
        for (int attempt = 1; attempt <= 2; attempt++) {
            rig_take(r, "first");
            ck_assert_int_eq(bh_worker_attempt(r->worker), attempt);
            expect_bytes(bh_worker_exchange(r->worker), r->exchange);
            expect_bytes(bh_worker_routing_key(r->worker), "work.a");
            rig_fail(r, "507");
        }
        ck_assert_int_eq(bh_worker_last_action(r->worker), BH_ACTION_PARK);
        if (round == 0)
            replay(r, 10, 1);
    }
    message parked;
    broker_get(r->broker, r->parked, &parked);
    expect_history(&parked, r, 2, "507");
    expect_bytes(message_string(&parked, "backhop-parked"), "exhausted");
    message_free(&parked);
    rig_free(r);
}
END_TEST

START_TEST(a_forged_origin_does_not_choose_where_a_message_is_replayed_to)
{
    rig *r = setup_rig(_i);
    rig_start(r);
    const char *victim = rig_name(r, "victim");
    char key[256];
    snprintf(key, sizeof key, "backhop:%s", victim);
    broker_declare_classic(r->broker, victim);
    if (broker_has_exchange(r->broker, rig_name(r, "return")))
        broker_bind(r->broker, victim, rig_name(r, "return"), key);
    amqp_table_entry_t headers[] = {entry_string("backhop-routing-key", key), entry_string("backhop-exchange", ""),
                                    entry_string("backhop-queue", victim), entry_string("backhop-parked", "permanent")};
    amqp_basic_properties_t properties = {._flags = AMQP_BASIC_HEADERS_FLAG, .headers = {4, headers}};
    broker_publish(r->broker, "", r->parked, &properties, bh_str("first"));
    replay(r, 10, 1);
    rig_take(r, "first");
    ck_assert_int_eq(bh_worker_attempt(r->worker), 1);
    rig_succeed(r);
    ck_assert_int_eq(broker_depth(r->broker, victim), 0);
    rig_free(r);
}
END_TEST

START_TEST(a_replayed_message_does_not_go_back_to_a_counter_of_earlier_code)
{
    rig *r = setup_rig(_i);
    rig_prepare(r);
    rig_make_worker(r);
    expect_ok(r->worker, bh_worker_set_legacy_counter(r->worker, bh_str("x-retry-count")));
    rig_connect(r);
    expect_ok(r->worker, bh_worker_declare(r->worker, BH_MODE_CREATE));
    amqp_table_entry_t header = entry_int("x-retry-count", 2);
    amqp_basic_properties_t properties = {._flags = AMQP_BASIC_HEADERS_FLAG, .headers = {1, &header}};
    broker_publish(r->broker, "", r->queue, &properties, bh_str("first"));
    rig_take(r, "first");
    ck_assert_int_eq(bh_worker_attempt(r->worker), 3);
    rig_fail(r, "507");
    ck_assert_int_eq(bh_worker_last_action(r->worker), BH_ACTION_PARK);
    replay(r, 10, 1);
    rig_take(r, "first");
    ck_assert_int_eq(bh_worker_attempt(r->worker), 1);
    ck_assert_int_eq(bh_delivery_header_int(r->delivery, bh_str("x-retry-count")), 2);
    rig_succeed(r);
    rig_free(r);
}
END_TEST

START_TEST(what_a_person_put_into_the_parked_queue_can_be_replayed)
{
    rig *r = setup_rig(_i);
    rig_start(r);
    broker_publish_text(r->broker, "", r->parked, "by hand");
    replay(r, 10, 1);
    rig_take(r, "by hand");
    ck_assert_int_eq(bh_worker_attempt(r->worker), 1);
    rig_succeed(r);
    rig_free(r);
}
END_TEST

START_TEST(a_replay_that_cannot_be_published_leaves_the_message_parked)
{
    rig *r = setup_rig(_i);
    rig_start(r);
    park(r, "work.a", "first");
    rig_stop_worker(r);
    rig_make_worker(r);
    rig_connect(r);
    expect_ok(r->worker, bh_worker_declare(r->worker, BH_MODE_NONE));
    broker_delete_exchange(r->broker, rig_name(r, "return"));
    int64_t count = -1;
    ck_assert_int_ne(bh_worker_replay(r->worker, 10, &count), BH_OK);
    ck_assert_int_eq(count, 0);
    broker_await_depth(r->broker, r->parked, 1);
    expect_ok(r->worker, bh_worker_declare(r->worker, BH_MODE_CREATE));
    replay(r, 10, 1);
    rig_take(r, "first");
    rig_succeed(r);
    rig_free(r);
}
END_TEST

START_TEST(replaying_goes_on_while_a_message_is_in_hand)
{
    rig *r = setup_rig(_i);
    rig_start(r);
    park(r, "work.a", "parked");
    rig_publish(r, "work.a", "in hand");
    rig_take(r, "in hand");
    int64_t count = -1;
    bh_status status = bh_worker_replay(r->worker, 10, &count);
    ck_assert(status == BH_OK || status == BH_ERR_STATE); /* refused or done: but the one in hand stays */
    expect_bytes(bh_worker_body(r->worker), "in hand");
    ck_assert_int_eq(bh_worker_attempt(r->worker), 1);
    rig_succeed(r);
    if (status != BH_OK)
        replay(r, 10, 1);
    rig_take(r, "parked");
    rig_succeed(r);
    rig_free(r);
}
END_TEST

START_TEST(a_parked_message_without_room_for_a_replay_lets_others_go)
{
    static const char filler[131072 - 8 - 12 - 18 - 60]; /* room for what basic.get adds on 3.10, and for no more */
    rig *r = setup_rig(_i);
    rig_start(r);
    amqp_table_entry_t header = entry_bytes("filler", AMQP_FIELD_KIND_BYTES, (bh_bytes){filler, sizeof filler});
    amqp_basic_properties_t properties = {._flags = AMQP_BASIC_HEADERS_FLAG, .headers = {1, &header}};
    broker_publish(r->broker, "", r->parked, &properties, bh_str("large"));
    broker_publish_text(r->broker, "", r->parked, "small");
    int64_t count = -1;
    expect_status(r->worker, bh_worker_replay(r->worker, 10, &count), BH_ERR_FRAME);
    ck_assert_int_eq(count, 1);
    rig_take(r, "small");
    rig_succeed(r);
    broker_await_depth(r->broker, r->parked, 1);
    rig_free(r);
}
END_TEST

START_TEST(replaying_without_a_parked_queue_says_so)
{
    rig *r = setup_rig(_i);
    rig_start(r);
    expect_ok(r->worker, bh_worker_declare(r->worker, BH_MODE_NONE));
    broker_delete_queue(r->broker, r->parked);
    int64_t count = -1;
    expect_status(r->worker, bh_worker_replay(r->worker, 10, &count), BH_ERR_MISSING);
    ck_assert_int_eq(count, 0);
    expect_error(r->worker, r->parked);
    rig_free(r);
}
END_TEST

Suite *suite_replay(void)
{
    Suite *suite = suite_create("replay");
    const setup_test tests[] = {
        {parked_messages_are_replayed_to_their_own_queue_alone, 0},
        {a_replayed_message_has_all_its_attempts_again, 0},
        {a_forged_origin_does_not_choose_where_a_message_is_replayed_to, 0},
        {a_replayed_message_does_not_go_back_to_a_counter_of_earlier_code, 0},
        {what_a_person_put_into_the_parked_queue_can_be_replayed, 0},
        {a_replay_that_cannot_be_published_leaves_the_message_parked, 1},
        {a_parked_message_without_room_for_a_replay_lets_others_go, 0},
        {replaying_without_a_parked_queue_says_so, 0},
    };
    setup_add_tests(suite, tests, sizeof tests / sizeof tests[0]);
    tcase_add_loop_test(add_case(suite, "in hand"), replaying_goes_on_while_a_message_is_in_hand, setup_first(),
                        setup_first() + 1);
    return suite;
}
