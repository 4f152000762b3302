#include "setups.h"
#include "suites.h"
#include "../reading.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Three failures with a delay of their own each, if the strategy has more than one. */
enum { MOST_FAILURES = 3 };

static const int64_t steps[MOST_FAILURES] = {50, 110, 170};

static int64_t use_delays(const rig *r)
{
    policy_set_max_attempts(r->policy, MOST_FAILURES + 1);
    switch (view_of(r->topology).settings.strategy) {
    case BH_STRATEGY_REJECT:
        return 0;
    case BH_STRATEGY_NATIVE:
        policy_set_kind(r->policy, BH_KIND_LINEAR);
        return 1;
    default:
        policy_set_kind(r->policy, BH_KIND_STEPS);
        for (int i = 0; i < MOST_FAILURES; i++)
            policy_add_step_ms(r->policy, steps[i]);
        return 2;
    }
}

static int64_t delay_after(int64_t delays, int failures)
{
    return delays == 0 ? RIG_DELAY_MS : delays == 1 ? RIG_DELAY_MS * failures : steps[failures - 1];
}

static void publish_with_header(const rig *r, const char *routing_key, const char *id)
{
    amqp_table_entry_t header = entry_string("tenant", id);
    amqp_basic_properties_t properties = {._flags = AMQP_BASIC_DELIVERY_MODE_FLAG | AMQP_BASIC_MESSAGE_ID_FLAG |
                                                    AMQP_BASIC_HEADERS_FLAG,
                                          .delivery_mode = 2,
                                          .message_id = amqp_cstring_bytes(id),
                                          .headers = {1, &header}};
    broker_publish(r->broker, r->exchange, routing_key, &properties, bh_str(id));
}

/* A message of the round: which it is, by its body. */
static size_t which(const rig *r, const char *const ids[], size_t count)
{
    bh_bytes body = bh_message_body(r->message);
    for (size_t i = 0; i < count; i++)
        if (body.size == strlen(ids[i]) && memcmp(body.data, ids[i], body.size) == 0)
            return i;
    ck_abort_msg("an unknown message came: %.*s", (int)body.size, body.data);
}

START_TEST(messages_of_several_routing_keys_go_round_until_they_succeed)
{
    rig *r = setup_rig(_i);
    int64_t delays = use_delays(r);
    rig_start(r);
    rig *beside = rig_new_beside(r, "beside");
    use_delays(beside);
    rig_prepare(beside);
    rig_make_worker(beside);
    rig_connect(beside);
    const char *sibling = rig_sibling(r, "sibling", "work.#");

    static const char *const ids[] = {"paris", "berlin", "warm"};
    static const char *const keys[] = {"work.purge.fr", "work.purge.de", "work"};
    enum { COUNT = 3 };
    int failures[COUNT] = {0, 0, 0};
    int64_t failed_at[COUNT] = {0, 0, 0};
    for (size_t i = 0; i < COUNT; i++)
        publish_with_header(r, keys[i], ids[i]);
    for (int left = COUNT; left > 0;) {
        rig_take(r, NULL);
        size_t i = which(r, ids, COUNT);
        if (failures[i] > 0)
            expect_waited(failed_at[i], delay_after(delays, failures[i]));
        expect_attempt(r, failures[i] + 1);
        expect_origin(r, r->exchange, keys[i]);
        expect_bytes(delivery_view_of(r->delivery).routing_key, keys[i]);
        expect_bytes(header_of(r->delivery, bh_str("tenant")).string, ids[i]);
        expect_bytes(bh_delivery_property(r->delivery, BH_PROPERTY_MESSAGE_ID), ids[i]);
        if (failures[i] == MOST_FAILURES) {
            rig_succeed(r);
            left--;
            continue;
        }
        failed_at[i] = now_ms();
        rig_fail(r, "507 queue is full");
        expect_retried(r, delay_after(delays, ++failures[i]));
    }
    rig_stop_worker(r);
    rig_stop_worker(beside);
    ck_assert_int_eq(broker_depth(r->broker, r->queue), 0);
    ck_assert_int_eq(broker_depth(r->broker, r->parked), 0);
    ck_assert_int_eq(broker_depth(r->broker, beside->queue), 0);
    broker_await_depth(r->broker, sibling, COUNT);
    rig_free(beside);
    rig_free(r);
}
END_TEST

/* The message settled last is parked for this reason, and nothing else of it remains. */
static void expect_in_parked_queue(rig *r, const char *reason, int64_t attempts, const char *error)
{
    message parked;
    expect_parked(r, reason);
    expect_bytes(bh_event_string(r->event, BH_FIELD_ID), "first");
    ck_assert_int_eq(bh_event_int(r->event, BH_FIELD_ATTEMPTS), attempts);
    broker_get(r->broker, r->parked, &parked);
    expect_history(&parked, r, attempts, error);
    expect_bytes(message_string(&parked, "backhop-parked"), reason);
    expect_bytes(message_string(&parked, "backhop-exchange"), r->exchange);
    expect_bytes(message_string(&parked, "backhop-routing-key"), "work.a");
    expect_bytes(message_string(&parked, "backhop-id"), "first");
    expect_bytes(message_string(&parked, "tenant"), "first");
    ck_assert_uint_eq(message_header(&parked, "backhop-delay").size, 0);
    ck_assert_uint_eq(message_header(&parked, "x-death").size, 0);
    expect_bytes(parked.body, "first");
    ck_assert_str_eq(parked.routing_key, r->parked);
    broker_ack(r->broker, &parked);
    message_free(&parked);
    rig_stop_worker(r);
    ck_assert_int_eq(broker_depth(r->broker, r->queue), 0);
}

START_TEST(after_its_last_attempt_a_message_is_parked)
{
    rig *r = setup_rig(_i);
    policy_set_max_attempts(r->policy, 2);
    if (setups[_i].strategy == BH_STRATEGY_NATIVE)
        policy_set_kind(r->policy, BH_KIND_LINEAR);
    rig_start(r);
    publish_with_header(r, "work.a", "first");
    rig_take(r, "first");
    rig_fail(r, "507 queue is full");
    rig_take(r, "first");
    expect_attempt(r, 2);
    rig_fail(r, "507 still full");
    expect_in_parked_queue(r, "exhausted", 2, "507 still full");
    rig_free(r);
}
END_TEST

START_TEST(a_message_that_cannot_succeed_is_parked_at_once)
{
    rig *r = setup_rig(_i);
    rig_start(r);
    publish_with_header(r, "work.a", "first");
    rig_take(r, "first");
    rig_park(r, "no such zone");
    expect_in_parked_queue(r, "permanent", 1, "no such zone");
    rig_free(r);
}
END_TEST

START_TEST(a_message_that_would_be_retried_too_late_is_parked)
{
    /* With reject, the first failure is in x-death, in whole seconds. */
    int64_t delay = setups[_i].strategy == BH_STRATEGY_REJECT ? 1100 : 300, age = 2 * delay - 100;
    rig *r = setup_rig(_i);
    policy_set_initial_ms(r->policy, delay);
    policy_set_max_age_ms(r->policy, age);
    policy_set_max_attempts(r->policy, 0);
    rig_start(r);
    publish_with_header(r, "work.a", "first");
    rig_take(r, "first");
    int64_t failed_at = now_ms();
    rig_fail(r, NULL);
    rig_take(r, "first");
    expect_waited(failed_at, delay);
    rig_fail(r, NULL);
    expect_in_parked_queue(r, "too-old", 2, NULL);
    rig_free(r);
}
END_TEST

START_TEST(a_message_that_nobody_needs_is_dropped)
{
    rig *r = setup_rig(_i);
    rig_start(r);
    rig_publish_and_take(r);
    rig_settle(r, BH_OUTCOME_DROPPED, "", 0);
    rig_expect_silence(r, 200);
    expect_no_event(r, BH_EVENT_RETRIED);
    expect_no_event(r, BH_EVENT_PARKED);
    rig_stop_worker(r);
    ck_assert_int_eq(broker_depth(r->broker, r->queue), 0);
    ck_assert_int_eq(broker_depth(r->broker, r->parked), 0);
    rig_free(r);
}
END_TEST

/* RabbitMQ 4 drops a quorum queue's message that was delivered 21 times, unless the queue has
 * another limit. */
static void deliver_often(rig *r, const char *queue)
{
    enum { TIMES = 25 };
    message taken;
    broker_publish_text(r->broker, "", queue, "first");
    for (int i = 0; i < TIMES; i++) {
        broker_get(r->broker, queue, &taken);
        broker_reject(r->broker, &taken, 1);
        message_free(&taken);
    }
    broker_get(r->broker, queue, &taken);
    expect_bytes(taken.body, "first");
    broker_ack(r->broker, &taken);
    message_free(&taken);
}

START_TEST(a_message_that_is_delivered_often_is_not_dropped)
{
    rig *r = setup_rig(_i);
    rig_start(r);
    rig_stop_worker(r); /* it would take them */
    deliver_often(r, r->parked);
    if (setups[_i].strategy != BH_STRATEGY_NATIVE) /* native: each of these is a failure, with a delay */
        deliver_often(r, r->queue);
    rig_free(r);
}
END_TEST

START_TEST(a_message_of_a_direct_exchange_keeps_its_exchange_and_routing_key)
{
    rig *r = setup_rig(_i);
    rig_start(r);
    char exchange[280];
    snprintf(exchange, sizeof exchange, "%s.direct", r->ns);
    const char *sibling = rig_name(r, "sibling");
    broker_declare_exchange(r->broker, exchange, "direct");
    broker_declare_classic(r->broker, sibling);
    broker_bind(r->broker, r->queue, exchange, "purge");
    broker_bind(r->broker, sibling, exchange, "purge");
    broker_publish_text(r->broker, exchange, "purge", "first");
    for (int attempt = 1; attempt <= 2; attempt++) {
        rig_take(r, "first");
        expect_attempt(r, attempt);
        expect_origin(r, exchange, "purge");
        if (attempt < 2)
            rig_fail(r, "507");
        else
            rig_succeed(r);
    }
    broker_await_depth(r->broker, sibling, 1);
    rig_free(r);
}
END_TEST

START_TEST(a_message_of_the_default_exchange_keeps_its_exchange_and_routing_key)
{
    rig *r = setup_rig(_i);
    rig_start(r);
    broker_publish_text(r->broker, "", r->queue, "first");
    for (int attempt = 1; attempt <= 2; attempt++) {
        rig_take(r, "first");
        expect_attempt(r, attempt);
        expect_origin(r, "", r->queue);
        if (attempt < 2)
            rig_fail(r, "507");
        else
            rig_succeed(r);
    }
    rig_free(r);
}
END_TEST

/* ----------------------------------------------------------------------------------- the ladder */

START_TEST(a_jittered_delay_waits_on_a_rung_of_the_grid)
{
    enum { COUNT = 12 };
    static const int64_t grid[] = {160, 200, 250}; /* around 200 ms, 15 % up or down */
    rig *r = setup_rig(_i);
    policy_set_initial_ms(r->policy, 200);
    policy_set_jitter(r->policy, BH_JITTER_SPREAD, 0.15);
    rig_start(r);
    int64_t failed_at[COUNT], delays[COUNT];
    char body[16];
    for (int i = 0; i < COUNT; i++) {
        snprintf(body, sizeof body, "%d", i);
        rig_publish(r, "work.a", body);
    }
    for (int i = 0; i < COUNT; i++) {
        rig_take(r, NULL);
        int id = atoi(bh_message_body(r->message).data);
        failed_at[id] = now_ms();
        rig_fail(r, NULL);
        ck_assert_int_eq(bh_event_what(r->event), BH_EVENT_RETRIED);
        delays[id] = bh_event_int(r->event, BH_FIELD_DELAY);
        ck_assert_msg(delays[id] == grid[0] || delays[id] == grid[1] || delays[id] == grid[2], "%lld ms is no rung",
                      (long long)delays[id]);
    }
    for (int i = 0; i < COUNT; i++) {
        rig_take(r, NULL);
        int id = atoi(bh_message_body(r->message).data);
        ck_assert_int_ge(now_ms() - failed_at[id] + 1, delays[id]); /* later by the failures after it */
        rig_succeed(r);
    }
    rig_free(r);
}
END_TEST

START_TEST(retry_after_gets_a_rung_of_its_own_on_demand)
{
    rig *r = setup_rig(_i);
    policy_set_max_retry_after_ms(r->policy, 500);
    policy_set_max_attempts(r->policy, 0);
    rig_start(r);
    ck_assert(!broker_has_queue(r->broker, rig_rung(r, 315)));
    static const int64_t asked[] = {260, 260, 49, 0, -5000, 90000},
                         given[] = {315, 315, RIG_DELAY_MS, RIG_DELAY_MS, RIG_DELAY_MS, 500};
    rig_publish(r, "work.a", "first");
    for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++) {
        rig_take(r, "first");
        int64_t failed_at = now_ms();
        rig_settle(r, BH_OUTCOME_FAILED, "429", asked[i]);
        rig_await_settled(r);
        expect_retried(r, given[i]);
        rig_take(r, "first");
        expect_waited(failed_at, given[i]);
        ck_assert(broker_has_queue(r->broker, rig_rung(r, given[i])));
        rig_fail(r, "507"); /* back to the policy's own delay */
        expect_retried(r, RIG_DELAY_MS);
    }
    rig_take(r, "first");
    rig_succeed(r);
    ck_assert(!broker_has_queue(r->broker, rig_rung(r, 250)));
    ck_assert(!broker_has_queue(r->broker, rig_rung(r, 400)));
    rig_free(r);
}
END_TEST

START_TEST(two_work_queues_share_their_rungs)
{
    rig *r = setup_rig(_i), *other = rig_new_beside(r, "other");
    rig_start(r);
    rig_start(other); /* bound to the same exchange: each gets the message */
    rig_publish(r, "work.a", "first");
    rig *both[] = {r, other};
    for (int attempt = 1; attempt <= 3; attempt++)
        for (size_t i = 0; i < 2; i++) {
            rig_take(both[i], "first");
            expect_attempt(both[i], attempt);
            if (attempt < 3)
                rig_fail(both[i], "507");
            else
                rig_succeed(both[i]);
        }
    rig_stop_worker(r);
    rig_stop_worker(other);
    ck_assert_int_eq(broker_depth(r->broker, r->queue), 0);
    ck_assert_int_eq(broker_depth(r->broker, other->queue), 0);
    rig_free(other);
    rig_free(r);
}
END_TEST

START_TEST(a_changed_policy_goes_on_with_messages_that_wait)
{
    rig *r = setup_rig(_i);
    policy_set_initial_ms(r->policy, 300);
    rig_start(r);
    rig_publish_and_take(r);
    int64_t failed_at = now_ms();
    rig_fail(r, "507");
    rig_stop_worker(r);
    policy_set_initial_ms(r->policy, 100);
    rig_start(r);
    rig_take(r, "first");
    expect_waited(failed_at, 300);
    expect_attempt(r, 2);
    failed_at = now_ms();
    rig_fail(r, "507");
    rig_take(r, "first");
    expect_waited(failed_at, 100);
    rig_succeed(r);
    broker_remove_later(rig_rung(r, 300));
    rig_free(r);
}
END_TEST

/* ---------------------------------------------------------------------------------- message-ttl */

START_TEST(a_short_delay_behind_a_long_one_is_late_by_no_more_than_the_topology_says)
{
    rig *r = setup_rig(_i);
    policy_set_kind(r->policy, BH_KIND_STEPS);
    policy_add_step_ms(r->policy, 700);
    policy_add_step_ms(r->policy, 100);
    rig_prepare(r);
    rig_make_worker(r);
    rig_set(r, prefetch, 1); /* the other worker shall get the long one */
    rig_start(r);
    ck_assert_int_eq(view_of(r->topology).worst_lateness_ms, 600);
    rig_publish(r, "work.a", "short");
    rig_take(r, "short");
    rig_fail(r, "507");
    rig_take(r, "short");
    rig_publish(r, "work.a", "long");
    rig *other = rig_new_beside(r, "work"); /* the same work queue */
    policy_set_kind(other->policy, BH_KIND_STEPS);
    policy_add_step_ms(other->policy, 700);
    policy_add_step_ms(other->policy, 100);
    rig_start(other);
    rig_take(other, "long");
    int64_t long_failed_at = now_ms();
    rig_fail(other, "507");
    expect_retried(other, 700);
    rig_stop_worker(other);
    rig_fail(r, "507");
    expect_retried(r, 100);
    rig_take(r, "long");
    rig_succeed(r);
    rig_take(r, "short");
    expect_waited(long_failed_at, 700);
    rig_succeed(r);
    rig_free(other);
    rig_free(r);
}
END_TEST

/* --------------------------------------------------------------------------------------- reject */

/* No consumer rejected it, so the broker takes its return binding for a cycle. The README warns of
 * it. */
START_TEST(a_message_that_expires_in_the_work_queue_of_reject_does_not_come_back)
{
    rig *r = setup_rig(_i);
    rig_start(r);
    rig_stop_worker(r); /* it would take it in time */
    amqp_basic_properties_t properties = {._flags = AMQP_BASIC_EXPIRATION_FLAG, .expiration = amqp_cstring_bytes("20")};
    broker_publish(r->broker, r->exchange, "work.a", &properties, bh_str("first"));
    broker_await_depth(r->broker, r->queue, 0);
    rig_restart(r, BH_MODE_CREATE);
    rig_expect_silence(r, 10 * RIG_DELAY_MS);
    rig_free(r);
}
END_TEST

/* ------------------------------------------------------------------------------------- refusals */

static void expect_refused(rig *r)
{
    rig_make_worker(r);
    expect_ok(r->worker, bh_worker_add_uri(r->worker, bh_str(broker_url())));
    expect_ok(r->worker, bh_worker_start(r->worker));
    expect_event(r, BH_EVENT_UNAVAILABLE, BH_ERR_BROKER, "ladder");
    ck_assert_int_gt(bh_event_int(r->event, BH_FIELD_DELAY), 0);
    expect_no_event(r, BH_EVENT_CONNECTED);
}

START_TEST(native_is_refused_by_a_broker_that_would_ignore_it)
{
    rig *r = rig_new(BH_STRATEGY_NATIVE, BH_QUEUE_QUORUM);
    rig_prepare(r);
    expect_refused(r);
    expect_part(bh_event_text(r->event), "4.3");
    ck_assert(!broker_has_queue(r->broker, r->queue));
    rig_free(r);
}
END_TEST

START_TEST(delayed_exchange_is_refused_by_a_broker_that_has_none)
{
    rig *r = rig_new(BH_STRATEGY_DELAYED_EXCHANGE, BH_QUEUE_CLASSIC);
    rig_prepare(r);
    expect_refused(r);
    rig_free(r);
}
END_TEST

Suite *suite_strategies(void)
{
    Suite *suite = suite_create("strategies");
    const setup_test tests[] = {
        {messages_of_several_routing_keys_go_round_until_they_succeed, 0},
        {after_its_last_attempt_a_message_is_parked, 0},
        {a_message_that_cannot_succeed_is_parked_at_once, 0},
        {a_message_that_is_delivered_often_is_not_dropped, 0},
        {a_message_that_nobody_needs_is_dropped, 0},
        {a_message_of_a_direct_exchange_keeps_its_exchange_and_routing_key, 0},
        {a_message_of_the_default_exchange_keeps_its_exchange_and_routing_key, 0},
    };
    setup_add_tests(suite, tests, sizeof tests / sizeof tests[0]);
    for (int i = 0; i < setup_count; i++) {
        if (!setup_can_be_served(&setups[i]))
            continue;
        if (setups[i].strategy !=
            BH_STRATEGY_NATIVE) /* which does not know when a message failed first, and is refused */
            tcase_add_loop_test(add_setup_case(suite, i), a_message_that_would_be_retried_too_late_is_parked, i, i + 1);
        if (setups[i].strategy == BH_STRATEGY_LADDER) {
            TCase *ladder = add_setup_case(suite, i);
            tcase_add_loop_test(ladder, a_jittered_delay_waits_on_a_rung_of_the_grid, i, i + 1);
            tcase_add_loop_test(ladder, retry_after_gets_a_rung_of_its_own_on_demand, i, i + 1);
            tcase_add_loop_test(ladder, two_work_queues_share_their_rungs, i, i + 1);
            tcase_add_loop_test(ladder, a_changed_policy_goes_on_with_messages_that_wait, i, i + 1);
        }
        if (setups[i].strategy == BH_STRATEGY_REJECT)
            tcase_add_loop_test(add_setup_case(suite, i),
                                a_message_that_expires_in_the_work_queue_of_reject_does_not_come_back, i, i + 1);
        if (setups[i].strategy == BH_STRATEGY_MESSAGE_TTL) {
            TCase *message_ttl = add_case(suite, setups[i].name);
            if (setups[i].type == BH_QUEUE_CLASSIC) /* the fast profile has one test of this strategy */
                long_case(message_ttl);
            tcase_add_loop_test(message_ttl, a_short_delay_behind_a_long_one_is_late_by_no_more_than_the_topology_says,
                                i, i + 1);
        }
    }
    TCase *refused = add_case(suite, "refused");
    if (!broker_is_at_least(4, 3))
        tcase_add_test(refused, native_is_refused_by_a_broker_that_would_ignore_it);
    if (!broker_has_delayed_exchange())
        tcase_add_test(refused, delayed_exchange_is_refused_by_a_broker_that_has_none);
    return suite;
}
