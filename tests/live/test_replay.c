#include "suites.h"
#include "trouble.h"
#include "../reading.h"

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
    rig_park(r, "no such zone");
    expect_parked(r, "permanent");
}

/* Replays, and that it ends so, after so many messages went. */
static void replay_to(rig *r, int64_t most, bh_status status, int64_t expected, const char *part)
{
    expect_ok(r->worker, bh_worker_replay(r->worker, most));
    expect_event(r, BH_EVENT_REPLAYED, status, part);
    ck_assert_int_eq(bh_event_int(r->event, BH_FIELD_COUNT), expected);
}

static void replay(rig *r, int64_t most, int64_t expected)
{
    replay_to(r, most, BH_OK, expected, "");
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
    expect_origin(r, r->exchange, "work.fr");
    rig_succeed(r);
    replay(r, 100, 2);
    replay(r, 100, 0);
    ck_assert_int_eq(broker_depth(r->broker, r->parked), 0);

    static const char *const bodies[] = {"second", "third"}, *const keys[] = {"work.de", "work"};
    for (int i = 0; i < 2; i++) {
        rig_take(r, bodies[i]);
        expect_attempt(r, 1);
        expect_origin(r, r->exchange, keys[i]);
        expect_bytes(header_of(r->delivery, bh_str("tenant")).string, bodies[i]);
        expect_bytes(bh_delivery_property(r->delivery, BH_PROPERTY_MESSAGE_ID), bodies[i]);
        expect_bytes(bh_delivery_property(r->delivery, BH_PROPERTY_TYPE), "cdn.purge");
        static const char *const cleared[] = {"backhop-first-failure", "backhop-delay", "backhop-error",
                                              "backhop-parked"};
        ck_assert_int_eq(header_of(r->delivery, bh_str("backhop-attempts")).integer, 0);
        for (size_t j = 0; j < sizeof cleared / sizeof cleared[0]; j++)
            ck_assert_msg(header_of(r->delivery, bh_str(cleared[j])).type == 0, "%s is left", cleared[j]);
        rig_succeed(r);
    }
    broker_await_depth(r->broker, sibling, 3);
    rig_free(r);
}
END_TEST

START_TEST(a_replayed_message_has_all_its_attempts_again)
{
    rig *r = setup_rig(_i);
    policy_set_max_attempts(r->policy, 2);
    rig_start(r);
    rig_publish(r, "work.a", "first");
    for (int round = 0; round < 2; round++) {
        for (int attempt = 1; attempt <= 2; attempt++) {
            rig_take(r, "first");
            expect_attempt(r, attempt);
            expect_origin(r, r->exchange, "work.a");
            rig_fail(r, "507");
        }
        expect_parked(r, "exhausted");
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
    expect_attempt(r, 1);
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
    rig_set_history(r, "x-retry-count", NULL);
    rig_connect(r);
    amqp_table_entry_t header = entry_int("x-retry-count", 2);
    amqp_basic_properties_t properties = {._flags = AMQP_BASIC_HEADERS_FLAG, .headers = {1, &header}};
    broker_publish(r->broker, "", r->queue, &properties, bh_str("first"));
    rig_take(r, "first");
    expect_attempt(r, 3);
    rig_fail(r, "507");
    expect_parked(r, "exhausted");
    replay(r, 10, 1);
    rig_take(r, "first");
    expect_attempt(r, 1);
    ck_assert_int_eq(header_of(r->delivery, bh_str("x-retry-count")).integer, 2);
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
    expect_attempt(r, 1);
    rig_succeed(r);
    rig_free(r);
}
END_TEST

START_TEST(a_replay_that_cannot_be_published_leaves_the_message_parked)
{
    rig *r = setup_rig(_i);
    rig_start(r);
    park(r, "work.a", "first");
    rig_restart(r, BH_MODE_NONE);
    broker_delete_exchange(r->broker, rig_name(r, "return"));
    expect_ok(r->worker, bh_worker_replay(r->worker, 10));
    rig_await(r, BH_EVENT_REPLAYED);
    ck_assert_int_ne((bh_status)bh_event_int(r->event, BH_FIELD_STATUS), BH_OK);
    ck_assert_int_eq(bh_event_int(r->event, BH_FIELD_COUNT), 0);
    broker_await_depth(r->broker, r->parked, 1);
    rig_restart(r, BH_MODE_CREATE);
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
    replay(r, 10, 1);
    expect_attempt(r, 1);
    rig_succeed(r);
    rig_take(r, "parked");
    rig_succeed(r);
    rig_free_with_nothing_ready(r);
}
END_TEST

START_TEST(a_replay_waits_for_the_connection_and_there_is_one_at_a_time)
{
    char url[4096];
    rig *r = setup_rig(_i);
    rig_start(r);
    park(r, "work.a", "first");
    rig_stop_worker(r);
    rig_in_a_hurry(r);
    expect_status(r->worker, bh_worker_replay(r->worker, 10), BH_ERR_STATE);
    proxy *network = proxy_open("127.0.0.1", broker_port(0));
    proxy_hold_broker(network, PROXY_ALL);
    broker_make_url(url, sizeof url, NULL, NULL, "127.0.0.1", proxy_port(network));
    start_by(r, url);
    expect_status(r->worker, bh_worker_replay(r->worker, -1), BH_ERR_ARGUMENT);
    expect_ok(r->worker, bh_worker_replay(r->worker, 10));
    expect_status(r->worker, bh_worker_replay(r->worker, 10), BH_ERR_STATE);
    expect_no_event(r, BH_EVENT_REPLAYED);
    proxy_hold_broker(network, PROXY_NONE);
    expect_event(r, BH_EVENT_REPLAYED, BH_OK, "");
    ck_assert_int_eq(bh_event_int(r->event, BH_FIELD_COUNT), 1);
    replay(r, 10, 0);
    rig_take(r, "first");
    rig_succeed(r);
    rig_free(r);
    proxy_close(network);
}
END_TEST

START_TEST(a_worker_that_only_replays_consumes_nothing)
{
    rig *r = setup_rig(_i);
    rig_start(r);
    park(r, "work.a", "first");
    rig_stop_worker(r);
    rig_make_worker(r);
    rig_set(r, prefetch, 0);
    rig_connect(r);
    replay(r, 10, 1);
    broker_await_depth(r->broker, r->queue, 1);
    rig_expect_silence(r, 200);
    broker_await_depth(r->broker, r->queue, 1);
    rig_free(r);
}
END_TEST

START_TEST(a_parked_message_without_room_for_a_replay_lets_others_go)
{
    rig *r = setup_rig(_i);
    rig_start(r);
    /* room for what basic.get adds on 3.10, and for no more */
    broker_publish_filled(r->broker, "", r->parked, 60, bh_str("large"));
    broker_publish_text(r->broker, "", r->parked, "small");
    replay_to(r, 10, BH_ERR_FRAME, 1, "frame_max");
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
    rig_restart(r, BH_MODE_NONE);
    broker_delete_queue(r->broker, r->parked);
    replay_to(r, 10, BH_ERR_MISSING, 0, r->parked);
    broker_publish_text(r->broker, "", r->queue, "first"); /* and the worker works on */
    rig_take(r, "first");
    rig_succeed(r);
    rig_free(r);
}
END_TEST

/* ----------------------------------------------------------------------------------- unroutable */

/* Retries a message whose work queue is gone before it comes back. */
static void lose(rig *r, const char *body)
{
    broker_publish_text(r->broker, "", r->queue, body);
    rig_take(r, body);
    rig_fail(r, "507");
    broker_delete_queue(r->broker, r->queue);
}

/* The work queue is the test's, so that no worker makes it again meanwhile. */
START_TEST(messages_that_came_back_to_no_queue_are_replayed_and_those_of_others_stay)
{
    rig *r = setup_rig(_i);
    const char *unroutable = rig_name(r, "unroutable");
    rig_leave_work_queue(r);
    policy_set_initial_ms(r->policy, 2000); /* the queue is gone by then */
    broker_declare_quorum(r->broker, r->queue);
    rig_in_a_hurry(r);
    rig_connect(r);
    replay(r, 0, 0); /* the worker has looked by itself */
    expect_bytes(view_of(r->topology).unroutable_queue, unroutable);
    amqp_table_entry_t theirs = entry_string("backhop-queue", rig_name(r, "another"));
    amqp_basic_properties_t properties = {._flags = AMQP_BASIC_HEADERS_FLAG, .headers = {1, &theirs}};
    broker_publish(r->broker, "", unroutable, &properties, bh_str("theirs"));
    broker_publish_text(r->broker, "", unroutable, "nobody's");
    lose(r, "first");
    broker_await_depth(r->broker, unroutable, 3);
    broker_publish(r->broker, "", unroutable, &properties, bh_str("theirs too"));

    broker_declare_quorum(r->broker, r->queue);
    rig_await(r, BH_EVENT_CANCELLED);
    rig_await(r, BH_EVENT_CONNECTED);
    replay(r, 0, 0);
    broker_await_depth(r->broker, unroutable, 4);
    replay(r, 10, 1);
    rig_take(r, "first");
    expect_attempt(r, 2); /* it was not parked: its attempts go on */
    rig_succeed(r);
    replay(r, 10, 0);
    static const char *const left[] = {"theirs", "nobody's", "theirs too"};
    for (int i = 0; i < 3; i++) {
        message taken;
        broker_get(r->broker, unroutable, &taken);
        expect_bytes(taken.body, left[i]);
        broker_ack(r->broker, &taken);
        message_free(&taken);
    }
    rig_free(r);
}
END_TEST

/* A worker looks when it is ready, and once a minute. */
/* Starts the worker and waits for its first look at the unroutable queue. The next one is a minute
 * later. */
static void start_and_await_look(rig *r)
{
    rig_start(r);
    rig_stop_worker(r);
    amqp_table_entry_t ours = entry_string("backhop-queue", r->queue);
    amqp_basic_properties_t properties = {._flags = AMQP_BASIC_HEADERS_FLAG, .headers = {1, &ours}};
    broker_publish(r->broker, "", rig_name(r, "unroutable"), &properties, bh_str("early"));
    rig_restart(r, BH_MODE_CREATE);
    expect_event(r, BH_EVENT_REPLAYED, BH_OK, "came back to no queue");
    rig_take(r, "early");
    rig_succeed(r);
}

START_TEST(F1_what_came_back_to_no_queue_returns_by_itself)
{
    rig *r = setup_rig(_i);
    const char *unroutable = rig_name(r, "unroutable");
    rig_start(r);
    rig_stop_worker(r);
    amqp_table_entry_t ours = entry_string("backhop-queue", r->queue), theirs = entry_string("backhop-queue", "other");
    amqp_basic_properties_t own = {._flags = AMQP_BASIC_HEADERS_FLAG, .headers = {1, &ours}},
                            foreign = {._flags = AMQP_BASIC_HEADERS_FLAG, .headers = {1, &theirs}};
    broker_publish(r->broker, "", unroutable, &own, bh_str("lost"));
    broker_publish(r->broker, "", unroutable, &foreign, bh_str("theirs"));
    rig_restart(r, BH_MODE_CREATE);
    expect_event(r, BH_EVENT_REPLAYED, BH_OK, "came back to no queue");
    ck_assert_int_eq(bh_event_int(r->event, BH_FIELD_COUNT), 1);
    rig_take(r, "lost");
    rig_succeed(r);
    broker_await_depth(r->broker, unroutable, 1);
    rig_free(r);
}
END_TEST

START_TEST(F1_messages_of_others_do_not_count_as_deliveries)
{
    enum { FOREIGN = 1000, COUNT = 200 };
    rig *r = setup_rig(_i);
    const char *unroutable = rig_name(r, "unroutable");
    rig_start(r);
    rig_stop_worker(r);
    amqp_table_entry_t theirs = entry_string("backhop-queue", "other");
    amqp_basic_properties_t foreign = {._flags = AMQP_BASIC_HEADERS_FLAG, .headers = {1, &theirs}};
    for (int i = 0; i < FOREIGN; i++)
        broker_publish(r->broker, "", unroutable, &foreign, bh_str("theirs"));
    for (int i = 0; i < COUNT; i++)
        broker_publish_text(r->broker, "", r->queue, "ours");
    rig_make_worker(r);
    rig_set(r, prefetch, 1);
    rig_connect(r);
    for (int i = 0; i < COUNT; i++) {
        rig_take(r, "ours");
        rig_succeed(r);
    }
    broker_await_depth(r->broker, unroutable, FOREIGN);
    ck_assert_int_eq(rig_count_events(r, BH_EVENT_DISCONNECTED), 0);
    rig_free(r);
}
END_TEST

START_TEST(what_is_parked_and_what_came_back_to_no_queue_count_together)
{
    rig *r = setup_rig(_i);
    const char *unroutable = rig_name(r, "unroutable");
    start_and_await_look(r);
    amqp_table_entry_t ours = entry_string("backhop-queue", r->queue);
    amqp_basic_properties_t properties = {._flags = AMQP_BASIC_HEADERS_FLAG, .headers = {1, &ours}};
    for (int i = 0; i < 3; i++)
        broker_publish(r->broker, "", unroutable, &properties, bh_str("lost"));
    park(r, "work.a", "parked");
    replay(r, 2, 2);
    rig_take(r, "parked");
    rig_succeed(r);
    rig_take(r, "lost");
    rig_succeed(r);
    broker_await_depth(r->broker, unroutable, 2);
    rig_restart(r, BH_MODE_NONE);
    broker_delete_queue(r->broker, unroutable);
    replay(r, 10, 0); /* a missing queue has nothing in it */
    broker_publish_text(r->broker, "", r->queue, "next");
    rig_take(r, "next");
    rig_succeed(r);
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
    int first = setup_first();
    TCase *watch = add_case(suite, "watch"), *minute = long_case(add_case(suite, "a look each minute"));
    tcase_add_loop_test(watch, F1_what_came_back_to_no_queue_returns_by_itself, first, first + 1);
    tcase_add_loop_test(minute, F1_messages_of_others_do_not_count_as_deliveries, first, first + 1);
    TCase *unroutable = add_case(suite, "unroutable");
    tcase_add_loop_test(long_case(add_case(suite, "unroutable, with others")),
                        messages_that_came_back_to_no_queue_are_replayed_and_those_of_others_stay, first, first + 1);
    tcase_add_loop_test(unroutable, what_is_parked_and_what_came_back_to_no_queue_count_together, first, first + 1);
    TCase *running = add_case(suite, "a worker that runs");
    tcase_add_loop_test(running, replaying_goes_on_while_a_message_is_in_hand, first, first + 1);
    tcase_add_loop_test(running, a_replay_waits_for_the_connection_and_there_is_one_at_a_time, first, first + 1);
    tcase_add_loop_test(running, a_worker_that_only_replays_consumes_nothing, first, first + 1);
    return suite;
}
