#include "proxy.h"
#include "setups.h"
#include "suites.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static rig *started_rig(void)
{
    rig *r = setup_rig(setup_first());
    rig_start(r);
    return r;
}

/* Waits 10 minutes for its second attempt, so that copies can be counted. */
static rig *waiting_rig(void)
{
    rig *r = setup_rig(setup_first());
    bh_policy_set_max_ms(r->policy, 600000);
    bh_policy_set_initial_ms(r->policy, 600000);
    rig_start(r);
    return r;
}

static bh_status try_to_fail(rig *r)
{
    return bh_worker_settle(r->worker, BH_OUTCOME_FAILED, bh_str("507"), 0);
}

static void expect_nothing_current(rig *r)
{
    expect_bytes(bh_worker_body(r->worker), "");
    expect_status(r->worker, try_to_fail(r), BH_ERR_STATE);
}

/* ------------------------------------------------------------------------------------------------- a hold that ended */

static void close_consumer(const rig *r)
{
    char words[1024];
    snprintf(
        words, sizeof words,
        "rabbitmqctl eval [rabbit_networking:close_connection(P,\"maintenance\")||[{pid,P},{client_properties,C}]<-"
        "rabbit_networking:connection_info_all([pid,client_properties]),lists:keyfind(<<\"connection_name\">>,1,C)=:="
        "{<<\"connection_name\">>,longstr,<<\"backhop\\sconsume\\s%s\">>}].",
        r->queue);
    broker_ctl(words);
}

START_TEST(a_connection_that_the_broker_closed_gets_no_copy_published)
{
    rig *r = waiting_rig();
    rig_publish(r, "work.a", "first");
    for (int i = 0; i < 2; i++) {
        rig_take(r, "first");
        ck_assert_int_eq(bh_worker_attempt(r->worker), 1);
        close_consumer(r);
        broker_await_depth(r->broker, r->queue, 1);
        expect_status(r->worker, try_to_fail(r), BH_ERR_CONNECTION);
        expect_nothing_current(r);
        ck_assert_int_eq(broker_depth(r->broker, rig_rung(r, 600000)), 0);
        rig_connect(r);
    }
    rig_take(r, "first");
    rig_fail(r, "507");
    broker_await_depth(r->broker, rig_rung(r, 600000), 1);
    ck_assert_int_eq(broker_depth(r->broker, r->queue), 0);
    rig_free(r);
}
END_TEST

START_TEST(a_broker_that_does_not_answer_the_consumer_gets_no_copy)
{
    rig *r = waiting_rig();
    proxy *network = proxy_open("127.0.0.1", broker_port(0));
    char url[4096];
    broker_make_url(url, sizeof url, NULL, NULL, "127.0.0.1", proxy_port(network));
    expect_ok(r->worker, bh_worker_set_confirm_timeout_ms(r->worker, 500));
    expect_ok(r->worker, bh_worker_connect(r->worker, bh_str(url)));
    rig_publish(r, "work.a", "first");
    rig_take(r, "first");
    proxy_hold_broker(network, 1);
    expect_status(r->worker, try_to_fail(r), BH_ERR_CONNECTION);
    proxy_hold_broker(network, 0);
    rig_connect(r);
    rig_take(r, "first");
    ck_assert_int_eq(bh_worker_attempt(r->worker), 1);
    rig_fail(r, "507");
    broker_await_depth(r->broker, rig_rung(r, 600000), 1);
    rig_free(r);
    proxy_close(network);
}
END_TEST

static void end_consumer_timeout(void)
{
    broker_ctl("rabbitmqctl eval application:set_env(rabbit,consumer_timeout,1800000).");
    broker_ctl("rabbitmqctl eval application:set_env(rabbit,channel_tick_interval,60000).");
}

static void begin_consumer_timeout(void)
{
    broker_ctl("rabbitmqctl eval application:set_env(rabbit,consumer_timeout,1000).");
    broker_ctl("rabbitmqctl eval application:set_env(rabbit,channel_tick_interval,500).");
}

enum { LONG_MS = 31000 };

START_TEST(a_message_that_timed_out_with_the_broker_gets_no_copy_published)
{
    begin_consumer_timeout();
    rig *r = waiting_rig();
    rig_publish(r, "work.a", "first");
    rig_take(r, "first");
    pause_ms(LONG_MS);
    if (broker_is_at_least(4, 3)) /* those before wait for the channel.close-ok */
        broker_await_depth(r->broker, r->queue, 1);
    bh_status status = try_to_fail(r);
    end_consumer_timeout();
    expect_status(r->worker, status, broker_is_at_least(4, 3) ? BH_ERR_CANCELLED : BH_ERR_CHANNEL);
    expect_nothing_current(r);
    ck_assert_int_eq(broker_depth(r->broker, rig_rung(r, 600000)), 0);
    rig_take(r, "first");
    ck_assert_int_eq(bh_worker_attempt(r->worker), 1);
    rig_fail(r, "507");
    broker_await_depth(r->broker, rig_rung(r, 600000), 1);
    rig_free(r);
}
END_TEST

START_TEST(a_message_that_timed_out_behind_another_gets_no_copy_published)
{
    begin_consumer_timeout();
    rig *r = waiting_rig();
    rig_publish(r, "work.a", "first");
    rig_publish(r, "work.a", "first");
    rig_take(r, "first");
    pause_ms(LONG_MS);
    broker_await_depth(r->broker, r->queue, 2);
    rig_succeed(r);
    rig_take(r, "first");
    bh_status status = try_to_fail(r);
    end_consumer_timeout();
    expect_status(r->worker, status, BH_ERR_CANCELLED);
    expect_nothing_current(r);
    ck_assert_int_eq(broker_depth(r->broker, rig_rung(r, 600000)), 0);
    rig_free(r);
}
END_TEST

START_TEST(a_message_held_long_is_settled_and_those_behind_it_come_again)
{
    enum { COUNT = 5 };
    rig *r = waiting_rig();
    for (int i = 0; i < COUNT; i++)
        rig_publish(r, "work.a", "first");
    rig_take(r, "first");
    pause_ms(LONG_MS);
    rig_fail(r, "507");
    for (int i = 1; i < COUNT; i++) {
        rig_take(r, "first");
        ck_assert_int_eq(bh_worker_attempt(r->worker), 1);
        rig_fail(r, "507");
    }
    broker_await_depth(r->broker, rig_rung(r, 600000), COUNT);
    rig_expect_silence(r, 0);
    rig_stop_worker(r);
    ck_assert_int_eq(broker_depth(r->broker, r->queue), 0);
    rig_free(r);
}
END_TEST

/* ------------------------------------------------------------------------------------------------------------ alarms */

static void end_alarm(void)
{
    broker_ctl("rabbitmqctl set_vm_memory_high_watermark 0.6");
}

static void begin_alarm(void)
{
    broker_ctl("rabbitmqctl set_vm_memory_high_watermark 0");
}

START_TEST(an_alarm_multiplies_no_message)
{
    rig *r = waiting_rig();
    expect_ok(r->worker, bh_worker_set_confirm_timeout_ms(r->worker, 500));
    rig_publish(r, "work.a", "first");
    rig_take(r, "first");
    begin_alarm();
    for (int i = 0; i < 4; i++)
        expect_status(r->worker, try_to_fail(r), BH_ERR_PUBLISH);
    expect_bytes(bh_worker_body(r->worker), "first");
    end_alarm();
    bh_status status = BH_ERR_PUBLISH;
    for (int64_t limit = now_ms() + LIMIT_MS; status == BH_ERR_PUBLISH && now_ms() < limit;)
        status = try_to_fail(r);
    expect_status(r->worker, status, BH_OK);
    rig_publish(r, "work.a", "second"); /* whatever copies there are, they were published before this one's */
    rig_take(r, "second");
    rig_fail(r, "507");
    broker_await_depth(r->broker, rig_rung(r, 600000), 2);
    rig_free(r);
}
END_TEST

START_TEST(copies_of_a_message_carry_one_id)
{
    rig *r = waiting_rig();
    const char *rung = rig_rung(r, 600000), *twin = rig_name(r, "twin"), *full = rig_name(r, "full");
    amqp_table_entry_t limit[] = {entry_int("x-max-length", 1), entry_string("x-overflow", "reject-publish")};
    broker_declare_queue(r->broker, full, limit, 2);
    broker_publish_text(r->broker, "", full, "filler");
    broker_declare_classic(r->broker, twin);
    broker_bind(r->broker, full, rung, "");
    broker_bind(r->broker, twin, rung, "");
    rig_publish(r, "work.a", "first");
    rig_take(r, "first");
    expect_status(r->worker, try_to_fail(r), BH_ERR_PUBLISH);
    broker_delete_queue(r->broker, full);
    expect_ok(r->worker, try_to_fail(r));
    message first, second;
    broker_get(r->broker, twin, &first);
    broker_get(r->broker, twin, &second);
    bh_bytes id = message_string(&first, "backhop-id"), other = message_string(&second, "backhop-id");
    ck_assert_uint_gt(id.size, 0);
    ck_assert(id.size == other.size && memcmp(id.data, other.data, id.size) == 0);
    message_free(&first);
    message_free(&second);
    rig_free(r);
}
END_TEST

/* ------------------------------------------------------------------------------------------- messages that are refused */

enum {
    FILLING_BYTES = 131072 - 8 - 12 - 2 - 4 - 1 - 1 - 1 - 4, /* of a header's value that fills its frame */
    COUNT_BYTES = 32                                         /* for x-delivery-count, which basic.get of 3.10 adds */
};

static void publish_to_the_brim(rig *r, const char *queue, size_t room)
{
    static char text[FILLING_BYTES];
    memset(text, 'x', sizeof text);
    bh_bytes value = {text, sizeof text - room};
    amqp_table_entry_t header = entry_bytes("a", 'S', value);
    amqp_basic_properties_t properties = {._flags = AMQP_BASIC_HEADERS_FLAG, .headers = {1, &header}};
    broker_publish(r->broker, "", queue, &properties, bh_str("brim"));
}

typedef struct calls {
    int count;
    int stop_after;
} calls;

static bh_outcome fail_until_told(bh_worker *worker, void *data)
{
    calls *seen = data;
    if (++seen->count == seen->stop_after)
        bh_worker_stop(worker);
    return BH_OUTCOME_FAILED;
}

START_TEST(a_message_that_fits_no_frame_stops_nobody)
{
    rig *r = waiting_rig();
    publish_to_the_brim(r, r->queue, 0);
    rig_publish(r, "work.a", "first");
    rig_publish(r, "work.a", "second");
    calls seen = {.stop_after = 3};
    expect_status(r->worker, bh_worker_run(r->worker, fail_until_told, &seen), BH_ERR_FRAME);
    expect_error(r->worker, "frame_max");
    ck_assert_int_eq(seen.count, 3);
    broker_await_depth(r->broker, rig_rung(r, 600000), 2);
    rig_stop_worker(r);
    broker_await_depth(r->broker, r->queue, 1);
    broker_purge(r->broker, r->queue);
    rig_free(r);
}
END_TEST

static void allow_large(void)
{
    broker_ctl("rabbitmqctl eval application:set_env(rabbit,max_message_size,16777216).");
    broker_ctl("rabbitmqctl eval persistent_term:put(max_message_size,16777216).");
}

static void forbid_large(void)
{
    broker_ctl("rabbitmqctl eval application:set_env(rabbit,max_message_size,100000).");
    broker_ctl("rabbitmqctl eval persistent_term:put(max_message_size,100000).");
}

static void publish_large(rig *r, const char *queue)
{
    static char body[200000];
    bh_bytes bytes = {body, sizeof body};
    amqp_basic_properties_t properties = {._flags = 0};
    broker_publish(r->broker, "", queue, &properties, bytes);
}

START_TEST(a_message_that_the_broker_takes_no_more_stops_nobody)
{
    rig *r = waiting_rig();
    publish_large(r, r->queue);
    rig_publish(r, "work.a", "first");
    forbid_large();
    rig_stop_worker(r); /* channels learn the limit when they open */
    rig_make_worker(r);
    rig_connect(r);
    expect_ok(r->worker, bh_worker_declare(r->worker, BH_MODE_CREATE));
    calls seen = {.stop_after = 2};
    bh_status status = bh_worker_run(r->worker, fail_until_told, &seen);
    allow_large();
    expect_status(r->worker, status, BH_ERR_CHANNEL);
    expect_error(r->worker, "200000");
    ck_assert_int_eq(seen.count, 2);
    broker_await_depth(r->broker, rig_rung(r, 600000), 1);
    rig_stop_worker(r);
    broker_await_depth(r->broker, r->queue, 1);
    rig_free(r);
}
END_TEST

START_TEST(a_parked_message_that_fits_no_frame_blocks_none_behind_it)
{
    rig *r = started_rig();
    broker_publish_text(r->broker, "", r->parked, "first");
    publish_to_the_brim(r, r->parked, COUNT_BYTES);
    broker_publish_text(r->broker, "", r->parked, "second");
    int64_t count = -1;
    expect_status(r->worker, bh_worker_replay(r->worker, 10, &count), BH_ERR_FRAME);
    ck_assert_int_eq(count, 2);
    broker_await_depth(r->broker, r->parked, 1);
    rig_take(r, "first");
    rig_succeed(r);
    rig_take(r, "second");
    rig_succeed(r);
    broker_purge(r->broker, r->parked);
    expect_ok(r->worker, bh_worker_replay(r->worker, 10, &count));
    rig_free(r);
}
END_TEST

/* -------------------------------------------------------------------------------------------- leaving and coming back */

START_TEST(a_worker_that_leaves_counts_no_failure)
{
    enum { COUNT = 5, ROUNDS = 3 };
    rig *r = rig_new(BH_STRATEGY_NATIVE, BH_QUEUE_QUORUM);
    rig_start(r);
    for (int i = 0; i < COUNT; i++)
        rig_publish(r, "work.a", "first");
    for (int round = 0; round < ROUNDS; round++) {
        rig_take(r, "first");
        ck_assert_int_eq(bh_worker_attempt(r->worker), 1);
        rig_stop_worker(r);
        broker_await_depth(r->broker, r->queue, COUNT);
        rig_make_worker(r);
        rig_connect(r);
    }
    for (int i = 0; i < COUNT; i++) {
        rig_take(r, "first");
        ck_assert_int_eq(bh_worker_attempt(r->worker), 1);
        rig_succeed(r);
    }
    rig_free(r);
}
END_TEST

START_TEST(retries_come_back_to_a_work_queue_that_was_deleted_and_declared_again)
{
    rig *r = setup_rig(_i);
    rig_start(r);
    rig_expect_silence(r, 0);
    broker_delete_queue(r->broker, r->queue);
    expect_status(r->worker, bh_worker_take(r->worker, LIMIT_MS), BH_ERR_CANCELLED);
    rig *owner = rig_new_beside(r, "work"); /* a worker of another process, the first to be back */
    rig_prepare(owner);
    rig_make_worker(owner);
    rig_connect(owner);
    expect_ok(owner->worker, bh_worker_declare(owner->worker, BH_MODE_CREATE));
    rig_free(owner);
    if (broker_has_exchange(r->broker, rig_name(r, "return"))) {
        char key[280];
        snprintf(key, sizeof key, "backhop:%s", r->queue);
        broker_unbind(r->broker, r->queue, rig_name(r, "return"), key);
    }
    broker_publish_text(r->broker, "", r->queue, "first");
    rig_take(r, "first");
    rig_fail(r, "507");
    rig_take(r, "first");
    ck_assert_int_eq(bh_worker_attempt(r->worker), 2);
    rig_succeed(r);
    rig_free(r);
}
END_TEST

/* What ends also where the test fails. */
static void add_test_with_end(Suite *suite, const char *name, const TTest *test, SFun end)
{
    TCase *tests = add_case(suite, name);
    tcase_add_unchecked_fixture(tests, NULL, end);
    tcase_add_test(tests, test);
}

Suite *suite_holding(void)
{
    Suite *suite = suite_create("holding");
    TCase *holds = add_case(suite, "a hold that ended");
    tcase_add_test(holds, a_broker_that_does_not_answer_the_consumer_gets_no_copy);
    tcase_add_test(holds, a_message_held_long_is_settled_and_those_behind_it_come_again);
    TCase *refused = add_case(suite, "messages that are refused");
    tcase_add_test(refused, a_message_that_fits_no_frame_stops_nobody);
    tcase_add_test(refused, a_parked_message_that_fits_no_frame_blocks_none_behind_it);
    TCase *copies = add_case(suite, "copies");
    tcase_add_test(copies, copies_of_a_message_carry_one_id);
    TCase *leaving = add_case(suite, "leaving and coming back");
    tcase_add_loop_test(leaving, retries_come_back_to_a_work_queue_that_was_deleted_and_declared_again, setup_first(),
                        setup_first() + 1);
    if (broker_is_at_least(4, 3))
        tcase_add_test(leaving, a_worker_that_leaves_counts_no_failure);
    if (!broker_can_be_controlled())
        return suite;
    tcase_add_test(holds, a_connection_that_the_broker_closed_gets_no_copy_published);
    add_test_with_end(suite, "consumer timeout", a_message_that_timed_out_with_the_broker_gets_no_copy_published,
                      end_consumer_timeout);
    if (broker_is_at_least(4, 3)) /* those before close the channel, which every plan that publishes notices */
        add_test_with_end(suite, "consumer timeout behind another",
                          a_message_that_timed_out_behind_another_gets_no_copy_published, end_consumer_timeout);
    add_test_with_end(suite, "alarm", an_alarm_multiplies_no_message, end_alarm);
    add_test_with_end(suite, "max_message_size", a_message_that_the_broker_takes_no_more_stops_nobody, allow_large);
    return suite;
}
