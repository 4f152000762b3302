/* Hand-made set-ups whose messages in flight Backhop takes over. */
#include "setups.h"
#include "suites.h"
#include "../reading.h"

static void publish_with(const rig *r, amqp_table_entry_t header, const char *body)
{
    amqp_basic_properties_t properties = {._flags = AMQP_BASIC_HEADERS_FLAG, .headers = {1, &header}};
    broker_publish(r->broker, r->exchange, "work.a", &properties, bh_str(body));
}

START_TEST(a_counter_of_earlier_code_goes_on)
{
    rig *r = setup_rig(_i);
    policy_set_max_attempts(r->policy, 5);
    rig_prepare(r);
    rig_make_worker(r);
    rig_set_history(r, "x-retry-count", NULL);
    rig_start(r);
    amqp_table_entry_t forms[] = {entry_int("x-retry-count", 3), entry_number("x-retry-count", AMQP_FIELD_KIND_I32, 3),
                                  entry_string("x-retry-count", "3")};
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        publish_with(r, forms[i], "first");
        rig_take(r, "first");
        expect_attempt(r, 4);
        rig_fail(r, "507");
        expect_retried(r, RIG_DELAY_MS);
        rig_take(r, "first");
        expect_attempt(r, 5);
        rig_fail(r, "507");
        expect_parked(r, "exhausted");
        message parked;
        broker_get(r->broker, r->parked, &parked);
        ck_assert_int_eq(message_int(&parked, "backhop-attempts"), 5);
        broker_ack(r->broker, &parked);
        message_free(&parked);
    }
    publish_with(r, entry_string("x-retry-count", "three"), "first");
    rig_take(r, "first");
    expect_attempt(r, 1);
    rig_succeed(r);
    rig_free(r);
}
END_TEST

/* The work queue dead-letters rejected messages into a wait queue, and that dead-letters them back:
 * a hand-made setup. */
START_TEST(messages_from_a_hand_made_wait_queue_keep_their_count)
{
    enum { ROUNDS = 3 };
    rig *r = setup_rig(_i);
    policy_set_max_attempts(r->policy, ROUNDS + 2);
    rig_leave_work_queue(r);
    rig_prepare(r);
    const char *wait = rig_name(r, "by-hand");
    amqp_table_entry_t work_arguments[] = {entry_string("x-queue-type", "classic"),
                                           entry_string("x-dead-letter-exchange", ""),
                                           entry_string("x-dead-letter-routing-key", wait)};
    amqp_table_entry_t wait_arguments[] = {entry_string("x-queue-type", "classic"), entry_int("x-message-ttl", 50),
                                           entry_string("x-dead-letter-exchange", ""),
                                           entry_string("x-dead-letter-routing-key", r->queue)};
    broker_declare_queue(r->broker, r->queue, work_arguments, 3);
    broker_declare_queue(r->broker, wait, wait_arguments, 4);
    broker_bind(r->broker, r->queue, r->exchange, "work.#");
    rig_publish(r, "work.a", "first");
    for (int i = 0; i < ROUNDS; i++) {
        message taken;
        broker_get(r->broker, r->queue, &taken);
        broker_reject(r->broker, &taken, 0);
        message_free(&taken);
    }
    broker_await_depth(r->broker, r->queue, 1); /* it waits once more for the worker */

    rig_make_worker(r);
    rig_set_history(r, NULL, wait);
    rig_connect(r);
    rig_take(r, "first");
    expect_attempt(r, ROUNDS + 1);
    rig_fail(r, "507");
    rig_take(r, "first");
    expect_attempt(r, ROUNDS + 2);
    rig_fail(r, "507");
    message parked;
    broker_get(r->broker, r->parked, &parked);
    ck_assert_int_eq(message_int(&parked, "backhop-attempts"), ROUNDS + 2);
    message_free(&parked);
    rig_free(r);
}
END_TEST

START_TEST(an_x_death_of_other_queues_counts_nothing)
{
    rig *r = setup_rig(_i);
    rig_start(r);
    const char *wait = rig_name(r, "by-hand");
    amqp_table_entry_t arguments[] = {entry_string("x-queue-type", "classic"), entry_int("x-message-ttl", 20),
                                      entry_string("x-dead-letter-exchange", ""),
                                      entry_string("x-dead-letter-routing-key", r->queue)};
    broker_declare_queue(r->broker, wait, arguments, 4);
    broker_publish_text(r->broker, "", wait, "first");
    rig_take(r, "first");
    ck_assert_int_eq(header_of(r->delivery, bh_str("x-death")).type, BH_TYPE_ARRAY);
    expect_attempt(r, 1);
    rig_fail(r, "507");
    rig_take(r, "first");
    expect_attempt(r, 2);
    rig_succeed(r);
    rig_free(r);
}
END_TEST

/* Counts go on across a change of strategy: what waited in the old one counts in the new one. */
START_TEST(messages_of_another_strategy_keep_their_count)
{
    rig *r = setup_rig(_i);
    policy_set_max_attempts(r->policy, 9);
    rig_start(r);
    rig *ladder = rig_new_beside(r, "work");
    ladder->strategy = BH_STRATEGY_LADDER;
    rig_leave_work_queue(ladder);
    policy_set_max_attempts(ladder->policy, 9);
    rig_prepare(ladder);
    rig_make_worker(ladder);

    rig_publish_and_take(r);
    rig_fail(r, "507");
    rig_take(r, "first");
    expect_attempt(r, 2);
    rig_stop_worker(r);
    rig_connect(ladder);
    rig_take(ladder, "first"); /* of what reject and native count, only their own strategy knows: it may begin anew */
    int64_t attempt = bh_worker_attempt(ladder->worker, ladder->message);
    ck_assert(attempt == 2 || (!setups[_i].publishes && attempt == 1));
    rig_fail(ladder, "507");
    rig_take(ladder, "first");
    expect_attempt(ladder, attempt + 1);
    rig_stop_worker(ladder);
    rig_make_worker(r);
    rig_connect(r);
    rig_take(r, "first");
    ck_assert_int_ge(bh_worker_attempt(r->worker, r->message), attempt + 1);
    rig_succeed(r);
    rig_free(ladder);
    rig_free(r);
}
END_TEST

Suite *suite_takeover(void)
{
    Suite *suite = suite_create("takeover");
    const setup_test tests[] = {
        {a_counter_of_earlier_code_goes_on, 1},
        {an_x_death_of_other_queues_counts_nothing, 0},
        {messages_of_another_strategy_keep_their_count, 0},
    };
    setup_add_tests(suite, tests, sizeof tests / sizeof tests[0]);
    TCase *by_hand = add_case(suite, "by hand");
    tcase_add_loop_test(by_hand, messages_from_a_hand_made_wait_queue_keep_their_count, setup_first(),
                        setup_first() + 1);
    return suite;
}
