/* The contract for handlers, as far as it is pure: health, time limit, ids, Retry-After
 * (docs/handlers.md). */
#include "suites.h"
#include "../reading.h"

#include <backhop/adapter.h>
#include <backhop/adapter/event.h>

/* --------------------------------------------------------------------------------------- health */

/* Applies an event to the health. connection: "" for an event that is about none. */
static void observe(bh_health *health, bh_event_kind kind, const char *connection, const char *text)
{
    bh_event *event;
    ck_assert_int_eq(bh_event_new(&event, kind), BH_OK);
    if (connection[0])
        bh_event_set_string(event, BH_FIELD_CONNECTION, bh_str(connection));
    if (text[0])
        bh_event_set_string(event, BH_FIELD_TEXT, bh_str(text));
    bh_health_observe(health, event);
    bh_event_free(event);
}

START_TEST(a_health_follows_the_events_of_a_consumer)
{
    static const struct {
        bh_event_kind kind;
        const char *connection, *text;
        bh_health_state state;
        const char *reason;
    } steps[] = {
        {BH_EVENT_UNAVAILABLE, "consume", "no route to host", BH_HEALTH_STARTING, "no route to host"},
        {BH_EVENT_CONNECTED, "consume", "RabbitMQ 4.3.6", BH_HEALTH_READY, "RabbitMQ 4.3.6"},
        {BH_EVENT_UNAVAILABLE, "", "no memory for a copy", BH_HEALTH_READY, "RabbitMQ 4.3.6"},
        {BH_EVENT_RETURNED, "", "312 NO_ROUTE", BH_HEALTH_READY, "RabbitMQ 4.3.6"},
        {BH_EVENT_BLOCKED, "publish", "low on memory", BH_HEALTH_PAUSED, "low on memory"},
        {BH_EVENT_CANCELLED, "consume", "the queue was deleted", BH_HEALTH_PAUSED, "the queue was deleted"},
        {BH_EVENT_UNBLOCKED, "publish", "over", BH_HEALTH_RECONNECTING, "over"},
        {BH_EVENT_CONNECTED, "consume", "again", BH_HEALTH_READY, "again"},
        {BH_EVENT_DISCONNECTED, "publish", "the socket was closed", BH_HEALTH_RECONNECTING, "the socket was closed"},
        {BH_EVENT_UNAVAILABLE, "consume", "refused", BH_HEALTH_RECONNECTING, "refused"},
        {BH_EVENT_BLOCKED, "publish", "low on disk", BH_HEALTH_PAUSED, "low on disk"},
        {BH_EVENT_DISCONNECTED, "consume", "cut", BH_HEALTH_PAUSED, "cut"},
        {BH_EVENT_DISCONNECTED, "", "an adapter's only one", BH_HEALTH_RECONNECTING, "an adapter's only one"},
        {BH_EVENT_BLOCKED, "publish", "low on disk", BH_HEALTH_PAUSED, "low on disk"},
        {BH_EVENT_DRAINED, "", "done", BH_HEALTH_STOPPED, "done"},
        {BH_EVENT_UNAVAILABLE, "consume", "a new run", BH_HEALTH_STARTING, "a new run"},
        {BH_EVENT_CONNECTED, "consume", "again", BH_HEALTH_READY, "again"},
        {BH_EVENT_BREAKER_OPENED, "", "10 failed in a row", BH_HEALTH_PAUSED, "10 failed in a row"},
        {BH_EVENT_BLOCKED, "publish", "low on disk", BH_HEALTH_PAUSED, "low on disk"},
        {BH_EVENT_UNBLOCKED, "publish", "over", BH_HEALTH_PAUSED, "over"},
        {BH_EVENT_DISCONNECTED, "consume", "cut", BH_HEALTH_RECONNECTING, "cut"},
        {BH_EVENT_CONNECTED, "consume", "again", BH_HEALTH_PAUSED, "again"},
        {BH_EVENT_BREAKER_HALF_OPEN, "", "the pause is over", BH_HEALTH_PAUSED, "the pause is over"},
        {BH_EVENT_BREAKER_CLOSED, "", "a probe succeeded", BH_HEALTH_READY, "a probe succeeded"},
    };
    bh_health health = {.state = BH_HEALTH_STARTING};
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        observe(&health, steps[i].kind, steps[i].connection, steps[i].text);
        ck_assert_msg(health.state == steps[i].state, "step %zu is %s", i, bh_health_name((int)health.state).data);
        ck_assert_str_eq(health.reason, steps[i].reason);
    }
}
END_TEST

START_TEST(a_health_bounds_its_reason_and_takes_nothing_for_nothing)
{
    char text[2 * BH_HEALTH_REASON_BYTES];
    bh_health health = {.state = BH_HEALTH_STARTING};
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = '\0';
    memcpy(text + BH_HEALTH_REASON_BYTES - 2, "\xc3\xa4", 2); /* one character of two bytes at the border */
    observe(&health, BH_EVENT_CONNECTED, "", text);
    ck_assert_uint_eq(strlen(health.reason), BH_HEALTH_REASON_BYTES - 2);
    bh_health_observe(NULL, NULL);
    bh_health_observe(&health, NULL);
    ck_assert_int_eq(health.state, BH_HEALTH_READY);
    ck_assert_str_eq(bh_health_name(BH_HEALTH_RECONNECTING).data, "reconnecting");
    ck_assert_str_eq(bh_health_name(-1).data, "");
    ck_assert_str_eq(bh_health_name(BH_HEALTH_LAST).data, "");
}
END_TEST

START_TEST(a_wait_that_failed_has_the_state_and_the_reason)
{
    char room[BH_HEALTH_WAIT_ROOM];
    bh_health health = {.state = BH_HEALTH_STARTING};
    ck_assert_str_eq(bh_health_wait_error(&health, 1, 50, room).data,
                     "the worker is not ready after 0.05 s; its state is starting");
    observe(&health, BH_EVENT_CONNECTED, "", "");
    observe(&health, BH_EVENT_DISCONNECTED, "consume", "connection refused");
    ck_assert_str_eq(bh_health_wait_error(&health, 0, 5000, room).data,
                     "the consumer is not ready after 5 s; its state is reconnecting: connection refused");
    observe(&health, BH_EVENT_DRAINED, "", "a handler ended the program");
    ck_assert_str_eq(bh_health_wait_error(&health, 0, -1, room).data,
                     "the consumer has stopped and cannot become ready; consume again: a handler ended the program");
    ck_assert_str_eq(bh_health_wait_error(&health, 1, -1, room).data,
                     "the worker has stopped and cannot become ready; run it again: a handler ended the program");
    memset(health.reason, 'x', sizeof health.reason - 1);
    ck_assert_uint_lt(bh_health_wait_error(&health, 0, INT64_MAX, room).size, BH_HEALTH_WAIT_ROOM);
    ck_assert_uint_eq(strspn(bh_health_wait_error(&health, 1, -1, room).data + 62, "x"), sizeof health.reason - 1);
    ck_assert_str_eq(bh_health_wait_error(NULL, 1, 50, room).data, "");
}
END_TEST

/* ----------------------------------------------------------------------------------- time limit */

START_TEST(a_handler_beyond_its_limit_has_failed)
{
    static const char limit_30_s[] = "the handler ran for longer than its limit of 30 s";
    static const struct {
        bh_outcome outcome;
        int64_t duration_ms, limit_ms;
        const char *text;
    } cases[] = {
        {BH_OUTCOME_OK, 30000, 30000, limit_30_s},
        {BH_OUTCOME_DROPPED, 40000, 30000, limit_30_s},
        {BH_OUTCOME_OK, 200, 200, "the handler ran for longer than its limit of 0.2 s"},
        {BH_OUTCOME_OK, 29999, 30000, ""},
        {BH_OUTCOME_OK, 40000, 0, ""},
        {BH_OUTCOME_OK, 40000, -1, ""},
        {BH_OUTCOME_FAILED, 40000, 30000, ""}, /* its own error says more */
        {BH_OUTCOME_PERMANENT, 40000, 30000, ""},
        {BH_OUTCOME_RELEASED, 40000, 30000, ""},
    };
    char room[BH_OVERRUN_ROOM];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        ck_assert_str_eq(bh_overrun_text(cases[i].outcome, cases[i].duration_ms, cases[i].limit_ms, room).data,
                         cases[i].text);
    ck_assert_uint_lt(bh_overrun_text(BH_OUTCOME_OK, INT64_MAX, INT64_MAX, room).size, BH_OVERRUN_ROOM);
}
END_TEST

static void expect_line(const bh_event *event, bh_level level, const char *line)
{
    ck_assert_int_eq(bh_event_level(event), level);
    ck_assert_str_eq(bh_event_line(event).data, line);
}

START_TEST(released_and_busy_have_their_words)
{
    bh_event *event;
    ck_assert_int_eq(bh_event_of(BH_OUTCOME_RELEASED), BH_EVENT_STALE);
    ck_assert_int_eq(bh_event_new(&event, BH_EVENT_STALE), BH_OK);
    bh_event_set_int(event, BH_FIELD_STATUS, BH_ERR_CANCELLED);
    expect_line(event, BH_LEVEL_INFO,
                "stale: a message: its handler was aborted by a stop: it goes back to its queue, and this was no "
                "attempt");
    bh_event_begin(event, BH_EVENT_BUSY);
    bh_event_set_string(event, BH_FIELD_QUEUE, bh_str("orders"));
    bh_event_set_int(event, BH_FIELD_COUNT, 4);
    bh_event_set_int(event, BH_FIELD_DURATION, 30000000);
    expect_line(
        event, BH_LEVEL_WARNING,
        "busy: queue \"orders\", for 30 s, 4 handlers: all handlers were busy for longer than their time limit, "
        "and no other message was handled; find the call that blocks them");
    ck_assert_int_eq(bh_event_is_of_each(BH_EVENT_BUSY), 0);
    bh_event_begin(event, BH_EVENT_CANCELLED);
    bh_event_set_int(event, BH_FIELD_STATUS, BH_ERR_STATE);
    bh_event_set_cause(event, bh_str("SystemExit: exit"));
    expect_line(event, BH_LEVEL_WARNING,
                "cancelled: a handler ended the program: the consumer stops (SystemExit: exit)");
    bh_event_begin(event, BH_EVENT_EARLY); /* F7 */
    bh_event_set_string(event, BH_FIELD_QUEUE, bh_str("orders"));
    bh_event_set_int(event, BH_FIELD_COUNT, 1);
    bh_event_set_int(event, BH_FIELD_DURATION, 4900000);
    expect_line(
        event, BH_LEVEL_WARNING,
        "early: queue \"orders\", up to 4.9 s, 1 message: retries came back before their time: a policy of "
        "RabbitMQ shortens the TTL of wait queues, or the clocks of hosts differ; run backhop doctor --management");
    bh_event_free(event);
}
END_TEST

START_TEST(a_handler_that_blocked_the_event_loop_is_named)
{
    bh_event *event = NULL;
    ck_assert_int_eq(bh_event_new(&event, BH_EVENT_DISCONNECTED), BH_OK);
    bh_event_set_string(event, BH_FIELD_QUEUE, bh_str("orders"));
    bh_event_set_string(event, BH_FIELD_ID, bh_str("17"));
    bh_event_set_int(event, BH_FIELD_DURATION, INT64_C(12000000));
    ck_assert_int_eq(bh_event_set_cause(event, bh_str("Heartbeat timeout")), BH_OK);
    const char *line = bh_event_line(event).data;
    ck_assert_str_eq(line, "disconnected: message \"17\" of \"orders\", for 12 s: a handler blocked the event loop for "
                           "longer than the heartbeat, so the connection was lost: the broker redelivers all "
                           "unacknowledged messages; move long computations to a thread or a process (Heartbeat "
                           "timeout)");
    bh_event_free(event);
}
END_TEST

/* ------------------------------------------------------------------------------------------ ids */

START_TEST(T5_a_message_has_one_id_from_its_first_delivery_on)
{
    static const char first[] = "0123456789abcdef", second[] = "another 16 bytes";
    const char plan_random[BH_PLAN_RANDOM_BYTES] = {0};
    bh_policy *policy;
    bh_topology *topology;
    bh_delivery *delivery;
    bh_history *history;
    bh_event *event;
    bh_plan *plan;
    bh_copy copy;
    ck_assert_int_eq(bh_policy_new(&policy), BH_OK);
    ck_assert_int_eq(bh_topology_new(&topology, bh_str("orders")), BH_OK);
    ck_assert_int_eq(bh_topology_build(topology, policy), BH_OK);
    ck_assert_int_eq(bh_delivery_new(&delivery), BH_OK);
    ck_assert_int_eq(bh_history_new(&history), BH_OK);
    ck_assert_int_eq(bh_plan_new(&plan), BH_OK);
    ck_assert_int_eq(bh_event_new(&event, BH_EVENT_DELIVERED), BH_OK);
    ck_assert_int_eq(bh_history_assign_id(history, (bh_bytes){first, 16}), BH_ERR_STATE);
    ck_assert_int_eq(bh_history_read(history, delivery, topology), BH_OK);
    ck_assert_int_eq(bh_history_assign_id(history, (bh_bytes){first, 15}), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_history_assign_id(NULL, (bh_bytes){first, 16}), BH_ERR_ARGUMENT);
    ck_assert_str_eq(past_of(history).event_id.data, "");

    ck_assert_int_eq(bh_history_assign_id(history, (bh_bytes){first, 16}), BH_OK);
    const char *id = "30313233343536373839616263646566";
    ck_assert_str_eq(past_of(history).id.data, ""); /* the publisher gave none */
    ck_assert_str_eq(past_of(history).event_id.data, id);
    ck_assert_int_eq(bh_event_set_history(event, history, 0, 1), BH_OK);
    ck_assert_str_eq(bh_event_string(event, BH_FIELD_ID).data, id);
    ck_assert_int_eq(bh_plan_make(plan, delivery, history, policy, topology, BH_OUTCOME_FAILED, bh_str("507"), 0, 1,
                                  (bh_bytes){plan_random, sizeof plan_random}),
                     BH_OK);
    ck_assert_int_eq(bh_plan_copy(plan, &copy), BH_OK);
    ck_assert_str_eq(copy.id.data, id);

    ck_assert_int_eq(bh_history_read(history, delivery, topology), BH_OK); /* another delivery */
    ck_assert_str_eq(past_of(history).event_id.data, "");
    ck_assert_int_eq(bh_history_assign_id(history, (bh_bytes){second, 16}), BH_OK);
    ck_assert_str_ne(past_of(history).event_id.data, id);
    bh_delivery_set_property(delivery, BH_PROPERTY_MESSAGE_ID, bh_str("o-17"));
    ck_assert_int_eq(bh_history_read(history, delivery, topology), BH_OK);
    ck_assert_int_eq(bh_history_assign_id(history, (bh_bytes){first, 16}), BH_OK);
    ck_assert_str_eq(past_of(history).event_id.data, "o-17");
    ck_assert_int_eq(bh_plan_make(plan, delivery, history, policy, topology, BH_OUTCOME_RELEASED, bh_str(""), 0, 1,
                                  (bh_bytes){plan_random, sizeof plan_random}),
                     BH_ERR_ARGUMENT);
    bh_event_free(event);
    bh_plan_free(plan);
    bh_history_free(history);
    bh_delivery_free(delivery);
    bh_topology_free(topology);
    bh_policy_free(policy);
}
END_TEST

/* ---------------------------------------------------------------------------------- Retry-After */

START_TEST(NT2_retry_after_is_read_as_http_writes_it)
{
    enum { S = 1000 };
    static const int64_t now_ms = INT64_C(784111777000); /* Sun, 06 Nov 1994 08:49:37 GMT */
    static const struct {
        const char *value;
        int64_t delay_ms;
    } cases[] = {
        {"120", 120 * S},
        {" 120\t", 120 * S},
        {"0", 0},
        {"007", 7 * S},
        {"99999999999999999999999", BH_POLICY_LONGEST_MS},
        {"", 0},
        {"  ", 0},
        {"garbage", 0},
        {"1.5", 0},
        {"-1", 0},
        {"+1", 0},
        {"1e3", 0},
        {"12 0", 0},
        {"Sun, 06 Nov 1994 08:49:38 GMT", 1 * S},
        {"Sun, 06 Nov 1994 08:49:37 GMT", 0},
        {"Sun, 06 Nov 1994 08:49:36 GMT", 0}, /* over */
        {"Sunday, 06-Nov-94 08:50:37 GMT", 60 * S},
        {"Sun Nov  6 08:49:40 1994", 3 * S},
        {"Wed Nov 16 08:49:37 1994", 864000 * S},
        {"Saturday, 05-Nov-44 08:49:37 GMT", BH_POLICY_LONGEST_MS}, /* 50 years ahead */
        {"Monday, 06-Nov-45 08:49:37 GMT", 0},                      /* more than 50 years ahead is the past */
        {"Thu, 29 Feb 1996 00:00:00 GMT", INT64_C(825552000000) - INT64_C(784111777000)},
        {"Fri, 01 Mar 1996 00:00:00 GMT", INT64_C(825638400000) - INT64_C(784111777000)},
        {"Fri, 31 Dec 9999 23:59:59 GMT", BH_POLICY_LONGEST_MS},
        {"Sun, 06 Nov 1994 08:49:38", 0},
        {"Sun, 06 Nov 1994 08:49:38 PST", 0},
        {"Sun, 6 Nov 1994 08:49:38 GMT", 0},
        {"Sun, 06 Nov 1994 24:49:38 GMT", 0},
        {"Sun, 00 Nov 1995 08:49:38 GMT", 0},
        {"Sun, 06 Foo 1995 08:49:38 GMT", 0},
        {"Sun, 06 Nov 1994 08:49:38 GMT, 120", 0},
        {"1994-11-06T08:49:38Z", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        ck_assert_msg(bh_retry_after_ms(bh_str(cases[i].value), now_ms) == cases[i].delay_ms, "\"%s\": %lld",
                      cases[i].value, (long long)bh_retry_after_ms(bh_str(cases[i].value), now_ms));
    ck_assert_int_eq(bh_retry_after_ms((bh_bytes){NULL, 0}, now_ms), 0);
    ck_assert_int_eq(bh_retry_after_ms((bh_bytes){"12\0", 3}, now_ms), 0);
    ck_assert_int_eq(bh_retry_after_ms(bh_str("120"), -1), 0);
    ck_assert_int_eq(bh_retry_after_ms(bh_str("Sunday, 06-Nov-94 08:50:37 GMT"), INT64_C(1) << 53), 0);
}
END_TEST

Suite *suite_handlers(void)
{
    Suite *suite = suite_create("handlers");
    TCase *tests = tcase_create("handlers");
    tcase_add_test(tests, a_health_follows_the_events_of_a_consumer);
    tcase_add_test(tests, a_health_bounds_its_reason_and_takes_nothing_for_nothing);
    tcase_add_test(tests, a_wait_that_failed_has_the_state_and_the_reason);
    tcase_add_test(tests, a_handler_beyond_its_limit_has_failed);
    tcase_add_test(tests, released_and_busy_have_their_words);
    tcase_add_test(tests, a_handler_that_blocked_the_event_loop_is_named);
    tcase_add_test(tests, T5_a_message_has_one_id_from_its_first_delivery_on);
    tcase_add_test(tests, NT2_retry_after_is_read_as_http_writes_it);
    suite_add_tcase(suite, tests);
    return suite;
}
