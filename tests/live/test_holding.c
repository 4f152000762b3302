#include "suites.h"
#include "trouble.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static rig *waiting_rig(void)
{
    rig *r = rig_that_waits();
    rig_start(rig_in_a_hurry(r));
    return r;
}

/* The one message in the rung, and no other anywhere. */
static void expect_one_copy(rig *r)
{
    rig_stop_worker(r);
    ck_assert_int_eq(broker_depth(r->broker, r->queue), 0);
    broker_await_depth(r->broker, rig_rung(r, WAITING_MS), 1);
}

/* ---------------------------------------------------------------------------- a hold that ended */

static void close_consumer(const rig *r)
{
    char words[1024];
    snprintf(
        words, sizeof words,
        "eval [rabbit_networking:close_connection(P,\"maintenance\")||[{pid,P},{client_properties,C}]<-"
        "rabbit_networking:connection_info_all([pid,client_properties]),lists:keyfind(<<\"connection_name\">>,1,C)=:="
        "{<<\"connection_name\">>,longstr,<<\"backhop\\sconsume\\s%s\">>}].",
        r->queue);
    broker_ctl(words);
}

START_TEST(F2_one_handler_outlives_connections_that_the_broker_closed)
{
    rig *r = waiting_rig();
    rig_publish_and_take(r);
    expect_attempt(r, 1);
    for (int i = 0; i < 3; i++) {
        close_consumer(r);
        expect_event(r, BH_EVENT_DISCONNECTED, BH_ERR_CONNECTION, "maintenance");
        ck_assert_int_eq(bh_event_int(r->event, BH_FIELD_COUNT), 1);
        rig_await(r, BH_EVENT_CONNECTED);
        rig_expect_silence(r, 300);
    }
    ck_assert_int_eq(broker_depth(r->broker, rig_rung(r, WAITING_MS)), 0);
    rig_fail(r, "507");
    expect_one_copy(r);
    rig_free(r);
}
END_TEST

START_TEST(F2_a_message_without_an_id_is_handled_again)
{
    rig *r = waiting_rig();
    rig_publish(r, "work.a", "first");
    rig_publish(r, "work.a", "first"); /* equal, so that no delivery belongs to one of the two */
    rig_take(r, "first");
    bh_message *first = r->message;
    r->message = NULL;
    rig_take(r, "first");
    close_consumer(r);
    rig_await(r, BH_EVENT_CONNECTED);
    expect_ok(r->worker, settle_as(r->worker, first, BH_OUTCOME_OK, "", 0));
    bh_message_free(first);
    rig_succeed(r);
    for (int i = 0; i < 2; i++) {
        rig_await(r, BH_EVENT_STALE);
        rig_take(r, "first");
        rig_succeed(r);
    }
    rig_expect_silence(r, 300);
    rig_free_with_nothing_ready(r);
}
END_TEST

START_TEST(a_broker_that_falls_silent_is_left)
{
    rig *r = rig_in_a_hurry(rig_that_waits());
    rig_set_timeouts(r, 500, 30000);
    proxy *network = start_by_proxy(r, "?heartbeat=1");
    rig_publish_and_take(r);
    proxy_hold_broker(network, PROXY_CONSUMER);
    expect_event(r, BH_EVENT_DISCONNECTED, BH_ERR_CONNECTION, "");
    ck_assert_int_eq(bh_event_int(r->event, BH_FIELD_COUNT), 1);
    rig_settle(r, BH_OUTCOME_FAILED, "507", 0);
    proxy_hold_broker(network, PROXY_NONE);
    rig_await(r, BH_EVENT_RETRIED);
    expect_one_copy(r);
    rig_free(r);
    proxy_close(network);
}
END_TEST

static void end_consumer_timeout(void)
{
    broker_ctl("eval application:set_env(rabbit,consumer_timeout,1800000).");
    broker_ctl("eval application:set_env(rabbit,channel_tick_interval,60000).");
}

static void begin_consumer_timeout(void)
{
    broker_ctl("eval application:set_env(rabbit,consumer_timeout,3000).");
    broker_ctl("eval application:set_env(rabbit,channel_tick_interval,500).");
}

START_TEST(F2_messages_that_timed_out_with_the_broker_are_settled_when_they_come_again)
{
    begin_consumer_timeout();
    rig *r = rig_that_waits();
    policy_set_max_crashes(r->policy, 0); /* what times out again, before the end of timeouts, counts as a crash */
    rig_start(rig_in_a_hurry(r));
    bh_message *behind = NULL;
    rig_publish_and_take(r);
    broker_publish_with_id(r->broker, r->exchange, "work.a", "second");
    expect_ok(r->worker, bh_worker_take(r->worker, &behind, LIMIT_MS));
    expect_event(r, BH_EVENT_CANCELLED, broker_is_at_least(4, 3) ? BH_ERR_CANCELLED : BH_ERR_CHANNEL,
                 broker_is_at_least(3, 10) ? "timeout" : "timed out");
    if (broker_is_at_least(4, 3)) /* first that it has ended, then the reason */
        expect_event(r, BH_EVENT_CANCELLED, BH_ERR_CANCELLED, "held longer");
    expect_part(bh_event_text(r->event), "was in hand for ");
    ck_assert_int_eq(bh_event_int(r->event, BH_FIELD_COUNT), 2);
    /* the handler of "first" works through one more timeout, and then succeeds */
    rig_await(r, BH_EVENT_CANCELLED);
    expect_ok(r->worker, settle_as(r->worker, behind, BH_OUTCOME_FAILED, "507", 0));
    bh_message_free(behind);
    rig_await(r, BH_EVENT_RETRIED);
    end_consumer_timeout();
    rig_succeed(r);
    rig_expect_silence(r, 1000);
    expect_no_event(r, BH_EVENT_DISCONNECTED);
    expect_no_event(r, BH_EVENT_STALE);
    broker_await_depth(r->broker, rig_rung(r, WAITING_MS), 1);
    rig_free_with_nothing_ready(r);
}
END_TEST

/* --------------------------------------------------------------------------------------- alarms */

START_TEST(an_alarm_multiplies_no_message_and_stops_no_consumer)
{
    enum { TIMEOUT = 5000 };
    rig *r = rig_in_a_hurry(rig_that_waits());
    rig_set_timeouts(r, 10000, TIMEOUT);
    rig_set(r, prefetch, 2);
    rig_start(r);
    broker_publish_numbers(r->broker, r->queue, 4);
    rig_take(r, "0");
    begin_alarm();
    rig_settle(r, BH_OUTCOME_FAILED, "507", 0);
    rig_await(r, BH_EVENT_BLOCKED);
    static const char *const others[] = {"1", "2", "3"};
    for (int i = 0; i < 3; i++) { /* each makes room for the next, so its ack has arrived */
        rig_take(r, others[i]);
        rig_succeed(r);
    }
    rig_expect_silence(r, TIMEOUT + 1000); /* the copy is not confirmed, and not sent again */
    expect_no_event(r, BH_EVENT_UNCONFIRMED);
    expect_no_event(r, BH_EVENT_RETRIED);
    expect_no_event(r, BH_EVENT_UNBLOCKED);
    end_alarm();
    rig_await(r, BH_EVENT_UNBLOCKED);
    rig_await(r, BH_EVENT_RETRIED);
    broker_publish_text(r->broker, "", r->queue, "next"); /* whatever copies there are, they came before this one's */
    rig_take(r, "next");
    rig_fail(r, "507");
    broker_await_depth(r->broker, rig_rung(r, WAITING_MS), 2);
    rig_free_with_nothing_ready(r);
}
END_TEST

START_TEST(copies_of_a_message_carry_one_id)
{
    rig *r = waiting_rig();
    const char *rung = rig_rung(r, WAITING_MS), *twin = rig_name(r, "twin"), *full = rig_name(r, "full");
    amqp_table_entry_t limit[] = {entry_int("x-max-length", 1), entry_string("x-overflow", "reject-publish")};
    broker_declare_queue(r->broker, full, limit, 2);
    broker_publish_text(r->broker, "", full, "filler");
    broker_declare_classic(r->broker, twin);
    broker_bind(r->broker, full, rung, "");
    broker_bind(r->broker, twin, rung, "");
    rig_publish_and_take(r);
    rig_settle(r, BH_OUTCOME_FAILED, "507", 0);
    expect_event(r, BH_EVENT_NACKED, BH_ERR_PUBLISH, rung);
    broker_delete_queue(r->broker, full);
    rig_await_settled(r);
    int copies = 2 + rig_count_events(r, BH_EVENT_NACKED);
    broker_await_depth(r->broker, twin, copies);
    broker_await_depth(r->broker, rung, copies);
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

/* -------------------------------------------------------------------- messages that are refused */

typedef struct calls {
    int count;
    int stop_after;
    bh_status refused;
    char text[512];
} calls;

static bh_outcome fail_until_told(bh_worker *worker, bh_message *taken, void *data)
{
    calls *seen = data;
    (void)taken;
    if (++seen->count == seen->stop_after)
        bh_worker_stop(worker, HOUR_MS); /* it does not wait for messages whose retries the broker does */
    return BH_OUTCOME_FAILED;
}

static void note_refused(bh_worker *worker, const bh_event *event, void *data)
{
    calls *seen = data;
    (void)worker;
    if (bh_event_what(event) != BH_EVENT_REFUSED)
        return;
    ck_assert_msg(seen->refused == BH_OK, "it is told twice");
    seen->refused = (bh_status)bh_event_int(event, BH_FIELD_STATUS);
    snprintf(seen->text, sizeof seen->text, "%s", bh_event_text(event).data);
}

START_TEST(a_message_that_fits_no_frame_stops_nobody)
{
    rig *r = rig_in_a_hurry(rig_that_waits());
    rig_set(r, prefetch, 2); /* one is left for the others */
    rig_start(r);
    broker_publish_filled(r->broker, "", r->queue, 0, bh_str("brim"));
    rig_publish(r, "work.a", "first");
    rig_publish(r, "work.a", "second");
    calls seen = {.stop_after = 3};
    expect_ok(r->worker, bh_worker_run(r->worker, fail_until_told, note_refused, &seen));
    ck_assert_int_eq(seen.refused, BH_ERR_FRAME);
    expect_part_at(bh_str(seen.text), "frame_max", __FILE__, __LINE__);
    ck_assert_int_eq(seen.count, 3);
    broker_await_depth(r->broker, rig_rung(r, WAITING_MS), 2);
    rig_stop_worker(r);
    broker_await_depth(r->broker, r->queue, 1);
    broker_purge(r->broker, r->queue);
    rig_free(r);
}
END_TEST

static void allow_large(void)
{
    broker_ctl("eval application:set_env(rabbit,max_message_size,16777216).");
    broker_ctl("eval persistent_term:put(max_message_size,16777216).");
}

static void forbid_large(void)
{
    broker_ctl("eval application:set_env(rabbit,max_message_size,100000).");
    broker_ctl("eval persistent_term:put(max_message_size,100000).");
}

static void publish_large(rig *r, const char *queue)
{
    static char body[200000];
    bh_bytes bytes = {body, sizeof body};
    amqp_basic_properties_t properties = {._flags = 0};
    broker_publish(r->broker, "", queue, &properties, bytes);
}

/* So that nothing but what the test is about wakes the worker. */
static void restart_without_heartbeats(rig *r)
{
    char url[4096];
    broker_make_url(url, sizeof url, NULL, NULL, NULL, 0);
    snprintf(url + strlen(url), sizeof url - strlen(url), "?heartbeat=0");
    rig_stop_worker(r);
    rig_make_worker(r);
    rig_connect_by(r, url);
}

START_TEST(a_message_that_the_broker_takes_no_more_stops_nobody)
{
    rig *r = waiting_rig();
    publish_large(r, r->queue);
    rig_publish(r, "work.a", "first");
    forbid_large();
    restart_without_heartbeats(r); /* channels learn the limit when they open */
    calls seen = {.stop_after = 2};
    expect_ok(r->worker, bh_worker_run(r->worker, fail_until_told, note_refused, &seen));
    allow_large();
    ck_assert_int_eq(seen.refused, BH_ERR_CHANNEL);
    expect_part_at(bh_str(seen.text), "200000", __FILE__, __LINE__);
    ck_assert_int_eq(seen.count, 2);
    broker_await_depth(r->broker, rig_rung(r, WAITING_MS), 1);
    rig_stop_worker(r);
    broker_await_depth(r->broker, r->queue, 1);
    rig_free(r);
}
END_TEST

Suite *suite_holding(void)
{
    Suite *suite = suite_create("holding");
    TCase *holds = add_case(suite, "a hold that ended");
    tcase_add_test(long_case(add_case(suite, "heartbeats")), a_broker_that_falls_silent_is_left);
    tcase_add_test(add_case(suite, "messages that are refused"), a_message_that_fits_no_frame_stops_nobody);
    tcase_add_test(add_case(suite, "copies"), copies_of_a_message_carry_one_id);
    if (!broker_can_be_controlled())
        return suite;
    tcase_add_test(holds, F2_a_message_without_an_id_is_handled_again);
    tcase_add_test(holds, F2_one_handler_outlives_connections_that_the_broker_closed);
    long_case(add_test_with_end(suite, "consumer timeout",
                                F2_messages_that_timed_out_with_the_broker_are_settled_when_they_come_again,
                                end_consumer_timeout));
    long_case(add_test_with_end(suite, "alarm", an_alarm_multiplies_no_message_and_stops_no_consumer, end_alarm));
    add_test_with_end(suite, "max_message_size", a_message_that_the_broker_takes_no_more_stops_nobody, allow_large);
    return suite;
}
