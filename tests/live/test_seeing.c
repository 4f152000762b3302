/* Seeing: events, metrics and traces of a worker. */
#include "../reading.h"
#include "rig.h"
#include "setups.h"
#include "suites.h"
#include "trouble.h"

#include <backhop/adapter.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define SPAN "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

static rig *rig_that_sees(bh_strategy strategy)
{
    static const bh_event_kind kinds[] = {BH_EVENT_DELIVERED, BH_EVENT_SUCCEEDED, BH_EVENT_FAILED, BH_EVENT_DROPPED};
    rig *r = rig_new(strategy, setups[setup_first()].type);
    bh_metrics *metrics;
    ck_assert_int_eq(bh_metrics_new(&metrics), BH_OK);
    rig_prepare(r);
    rig_make_worker(r);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        rig_set(r, emits[kinds[i]], 1);
    expect_ok(r->worker, bh_worker_set_metrics(r->worker, metrics));
    bh_metrics_free(metrics);
    rig_start(r);
    return r;
}

/* That an event of this kind comes, of this attempt, and with this error's class. */
static void expect_told_of(rig *r, bh_event_kind kind, int64_t attempt, const char *error_class)
{
    rig_await(r, kind);
    expect_bytes(bh_event_string(r->event, BH_FIELD_QUEUE), r->queue);
    if (bh_event_has(r->event, BH_FIELD_ATTEMPT))
        ck_assert_int_eq(bh_event_int(r->event, BH_FIELD_ATTEMPT), attempt);
    else
        ck_assert_int_eq(bh_event_int(r->event, BH_FIELD_ATTEMPTS), attempt);
    expect_bytes(bh_event_string(r->event, BH_FIELD_ERROR_CLASS), error_class);
}

/* Waits until this line is among what the worker has counted. */
static void expect_line_of_metrics(rig *r, const char *line)
{
    bh_metrics *metrics;
    ck_assert_int_eq(bh_metrics_new(&metrics), BH_OK);
    int64_t limit = now_ms() + LIMIT_MS;
    expect_ok(r->worker, bh_worker_read_metrics(r->worker, metrics));
    while (!holds(bh_metrics_text(metrics), line) && now_ms() < limit) {
        pause_ms(1);
        expect_ok(r->worker, bh_worker_read_metrics(r->worker, metrics));
    }
    expect_part(bh_metrics_text(metrics), line);
    bh_metrics_free(metrics);
}

/* Expects a labelled metric's value: these labels stand behind the queue's. */
static void expect_counted(rig *r, const char *name, const char *labels, const char *value)
{
    char line[600];
    snprintf(line, sizeof line, "%s{queue=\"%s\"%s} %s\n", name, r->queue, labels, value);
    expect_line_of_metrics(r, line);
}

/* Metrics with these classes of errors, up to the first "". */
static bh_metrics *metrics_of(const char *first, const char *second)
{
    bh_metrics *metrics;
    ck_assert_int_eq(bh_metrics_new(&metrics), BH_OK);
    if (*first)
        ck_assert_int_eq(bh_metrics_add_error_type(metrics, bh_str(first)), BH_OK);
    if (*second)
        ck_assert_int_eq(bh_metrics_add_error_type(metrics, bh_str(second)), BH_OK);
    return metrics;
}

START_TEST(a_worker_counts_once_for_metrics_that_tell_the_same_errors_apart)
{
    static const char *const others[][2] = {{"", ""}, {"OSError", ""}, {"OSError", "KeyError"}};
    rig *r = rig_new(BH_STRATEGY_LADDER, setups[setup_first()].type);
    bh_metrics *first = metrics_of("OSError", "TimeoutError"), *same = metrics_of("TimeoutError", "OSError");
    rig_prepare(r);
    rig_make_worker(r);
    expect_ok(r->worker, bh_worker_set_metrics(r->worker, first));
    expect_ok(r->worker, bh_worker_set_metrics(r->worker, same));
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        bh_metrics *other = metrics_of(others[i][0], others[i][1]);
        ck_assert_int_eq(bh_worker_set_metrics(r->worker, other), BH_ERR_ARGUMENT);
        expect_part(bh_worker_error(r->worker), "give each the same error types");
        bh_metrics_free(other);
    }
    expect_ok(r->worker, bh_worker_set_metrics(r->worker, NULL));
    bh_metrics *unnamed = metrics_of("", "");
    expect_ok(r->worker, bh_worker_set_metrics(r->worker, unnamed));
    expect_ok(r->worker, bh_worker_set_metrics(r->worker, unnamed));
    ck_assert_int_eq(bh_worker_set_metrics(r->worker, first), BH_ERR_ARGUMENT);
    bh_metrics_free(unnamed);
    bh_metrics_free(first);
    bh_metrics_free(same);
    rig_free(r);
}
END_TEST

START_TEST(a_message_that_fails_and_then_succeeds_is_seen_all_the_way)
{
    rig *r = rig_that_sees(BH_STRATEGY_LADDER);
    rig_publish_and_take(r);
    int64_t number = bh_message_number(r->message);
    ck_assert_int_gt(number, 0);
    expect_told_of(r, BH_EVENT_DELIVERED, 1, "");
    ck_assert_int_eq(bh_event_message(r->event), number);
    ck_assert_int_eq(bh_event_has(r->event, BH_FIELD_LATENESS), 0);
    bh_settlement failed = {.outcome = BH_OUTCOME_FAILED,
                            .error = bh_str("no answer"),
                            .error_class = bh_str("TimeoutError"),
                            .traceparent = bh_str("no span")};
    ck_assert_int_eq(bh_worker_settle(r->worker, r->message, &failed), BH_ERR_ARGUMENT);
    failed.traceparent = bh_str(SPAN);
    expect_ok(r->worker, bh_worker_settle(r->worker, r->message, &failed));
    failed.error_class = bh_str("late");
    ck_assert_int_eq(bh_worker_settle(r->worker, r->message, &failed), BH_ERR_STATE);
    expect_told_of(r, BH_EVENT_FAILED, 1, "TimeoutError");
    ck_assert_int_eq(bh_event_message(r->event), number);
    expect_bytes(bh_event_string(r->event, BH_FIELD_ERROR), "no answer");
    ck_assert_int_gt(bh_event_int(r->event, BH_FIELD_DURATION), 0);
    expect_told_of(r, BH_EVENT_RETRIED, 1, "TimeoutError");
    ck_assert_int_eq(bh_event_message(r->event), number);
    expect_bytes(bh_event_string(r->event, BH_FIELD_ERROR), "no answer");
    ck_assert_int_eq(bh_event_int(r->event, BH_FIELD_DELAY), RIG_DELAY_MS);
    ck_assert_int_gt(bh_event_int(r->event, BH_FIELD_DURATION), 0);

    rig_take(r, "first");
    ck_assert_int_ne(bh_message_number(r->message), number);
    expect_bytes(past_of(r->history).traceparent, SPAN);
    expect_told_of(r, BH_EVENT_DELIVERED, 2, "");
    ck_assert_int_eq(bh_event_has(r->event, BH_FIELD_LATENESS), 1);
    rig_succeed(r);
    expect_told_of(r, BH_EVENT_SUCCEEDED, 2, "");
    ck_assert_int_ge(bh_event_int(r->event, BH_FIELD_RECOVERY), RIG_DELAY_MS);

    expect_counted(r, "backhop_retries_total", ",error_type=\"TimeoutError\"", "1");
    expect_counted(r, "messaging_process_duration_seconds_count", ",error_type=\"TimeoutError\"", "1");
    expect_counted(r, "messaging_process_duration_seconds_count", ",error_type=\"\"", "1");
    expect_counted(r, "backhop_retry_lateness_seconds_count", "", "1");
    expect_counted(r, "backhop_retry_delay_seconds_sum", "", "0.05");
    expect_counted(r, "backhop_attempts_sum", ",outcome=\"succeeded\"", "2");
    expect_counted(r, "backhop_recovery_time_seconds_count", "", "1");
    expect_line_of_metrics(r, "backhop_copy_duration_seconds_count 1\n");
    expect_line_of_metrics(r, "backhop_copies_unconfirmed 0\n");
    rig_free(r);
}
END_TEST

START_TEST(what_is_parked_and_dropped_is_seen)
{
    rig *r = rig_that_sees(BH_STRATEGY_LADDER);
    rig_publish_and_take(r);
    rig_settle(r, BH_OUTCOME_PERMANENT, "410 gone", 0);
    expect_told_of(r, BH_EVENT_FAILED, 1, "");
    expect_told_of(r, BH_EVENT_PARKED, 1, "");
    expect_bytes(bh_event_string(r->event, BH_FIELD_REASON), "permanent");
    expect_bytes(bh_event_string(r->event, BH_FIELD_ERROR), "410 gone");
    rig_publish(r, "work.a", "second");
    rig_take(r, "second");
    rig_settle(r, BH_OUTCOME_DROPPED, "", 0);
    expect_told_of(r, BH_EVENT_DROPPED, 1, "");
    expect_counted(r, "backhop_parked_total", ",reason=\"permanent\"", "1");
    expect_counted(r, "backhop_attempts_sum", ",outcome=\"dropped\"", "1");
    expect_counted(r, "messaging_process_duration_seconds_count", ",error_type=\"_OTHER\"", "1");
    rig_free(r);
}
END_TEST

START_TEST(a_retry_by_the_broker_alone_is_seen)
{
    rig *r = rig_that_sees(BH_STRATEGY_REJECT);
    rig_publish_and_take(r);
    rig_settle(r, BH_OUTCOME_FAILED, "507", 0);
    expect_told_of(r, BH_EVENT_FAILED, 1, "");
    expect_told_of(r, BH_EVENT_RETRIED, 1, "");
    ck_assert_int_eq(bh_event_int(r->event, BH_FIELD_DELAY), RIG_DELAY_MS);
    rig_take(r, "first");
    expect_told_of(r, BH_EVENT_DELIVERED, 1, "");
    expect_told_of(r, BH_EVENT_DELIVERED, 2, "");
    expect_counted(r, "backhop_retries_total", ",error_type=\"_OTHER\"", "1");
    rig_free(r);
}
END_TEST

START_TEST(nothing_is_told_of_each_message_and_nothing_is_counted_where_nobody_asks)
{
    rig *r = rig_new(BH_STRATEGY_LADDER, setups[setup_first()].type);
    bh_metrics *metrics;
    ck_assert_int_eq(bh_metrics_new(&metrics), BH_OK);
    rig_prepare(r);
    ck_assert_int_eq(bh_worker_new(&r->worker, r->policy, r->topology), BH_OK);
    bh_worker_defaults(&r->settings);
    rig_expect_refused(r, emits[BH_EVENT_FAILED], 2, BH_ERR_ARGUMENT);
    rig_start(r);
    rig_publish_and_take(r);
    rig_settle(r, BH_OUTCOME_FAILED, "507", 0);
    rig_take(r, "first");
    rig_settle(r, BH_OUTCOME_PERMANENT, "507", 0);
    rig_await(r, BH_EVENT_PARKED);
    for (int kind = 0; kind < BH_EVENT_LAST; kind++)
        ck_assert_msg(kind == BH_EVENT_CONNECTED || rig_count_events(r, (bh_event_kind)kind) == 0, "%s",
                      bh_event_name(kind).data);
    ck_assert_int_eq(bh_worker_read_metrics(r->worker, metrics), BH_ERR_STATE);
    bh_metrics_free(metrics);
    rig_free(r);
}
END_TEST

typedef struct reading {
    bh_worker *worker;
    atomic_int is_over;
} reading;

static void *read_metrics(void *data)
{
    reading *self = data;
    bh_metrics *sum;
    ck_assert_int_eq(bh_metrics_new(&sum), BH_OK);
    while (!atomic_load(&self->is_over)) {
        bh_status status = bh_worker_read_metrics(self->worker, sum);
        ck_assert_msg(status == BH_OK || status == BH_ERR_STATE, "%s", bh_status_text(status).data);
    }
    bh_metrics_free(sum);
    return NULL;
}

/* As a program that is scraped while it sets up its worker anew. */
START_TEST(metrics_can_be_read_while_another_thread_sets_them)
{
    rig *r = rig_new(BH_STRATEGY_LADDER, setups[setup_first()].type);
    pthread_t reader;
    ck_assert_int_eq(bh_topology_build(r->topology, r->policy), BH_OK);
    ck_assert_int_eq(bh_worker_new(&r->worker, r->policy, r->topology), BH_OK);
    reading of = {.worker = r->worker};
    ck_assert_int_eq(pthread_create(&reader, NULL, read_metrics, &of), 0);
    for (int i = 0; i < 2000; i++) {
        bh_metrics *metrics = metrics_of(i % 3 ? "TimeoutError" : "", "");
        expect_ok(r->worker, bh_worker_set_metrics(r->worker, NULL));
        expect_ok(r->worker, bh_worker_set_metrics(r->worker, metrics));
        bh_metrics_free(metrics);
    }
    atomic_store(&of.is_over, 1);
    ck_assert_int_eq(pthread_join(reader, NULL), 0);
    rig_free(r);
}
END_TEST

START_TEST(how_many_copies_are_unconfirmed_is_known_without_metrics)
{
    rig *r = rig_new(BH_STRATEGY_LADDER, setups[setup_first()].type);
    rig_prepare(r);
    rig_make_worker(r);
    ck_assert_int_eq(bh_worker_copies(r->worker), 0);
    ck_assert_int_eq(bh_worker_copies(NULL), 0);
    rig_start(r);
    rig_publish_and_take(r);
    begin_alarm();
    rig_settle(r, BH_OUTCOME_FAILED, "507", 0);
    rig_await(r, BH_EVENT_BLOCKED);
    ck_assert_int_eq(bh_worker_copies(r->worker), 1);
    end_alarm();
    rig_await_settled(r);
    while (bh_worker_copies(r->worker) > 0)
        pause_ms(1);
    rig_free(r);
}
END_TEST

START_TEST(F7_retries_that_come_back_early_are_an_event_once_a_minute)
{
    rig *r = setup_rig(setup_first());
    rig_start(r);
    amqp_table_entry_t due = {.key = amqp_cstring_bytes("backhop-due"), .value = {.kind = AMQP_FIELD_KIND_I64}};
    amqp_basic_properties_t properties = {._flags = AMQP_BASIC_HEADERS_FLAG, .headers = {1, &due}};
    for (int i = 0; i < 2; i++) {
        due.value.value.i64 = epoch_ms() + 3600000;
        broker_publish(r->broker, "", r->queue, &properties, bh_str("early"));
        rig_take(r, "early");
        rig_succeed(r);
    }
    rig_await(r, BH_EVENT_EARLY);
    ck_assert_int_eq(bh_event_int(r->event, BH_FIELD_COUNT), 1);
    ck_assert_int_gt(bh_event_int(r->event, BH_FIELD_DURATION), INT64_C(3500000000));
    ck_assert_int_eq(bh_event_level(r->event), BH_LEVEL_WARNING);
    expect_no_event(r, BH_EVENT_EARLY);
    rig_free(r);
}
END_TEST

START_TEST(T3_a_gauge_has_the_workers_that_are_ready)
{
    rig *r = rig_that_sees(BH_STRATEGY_LADDER);
    expect_counted(r, "backhop_consumers_ready", "", "1");
    rig_publish_and_take(r);
    begin_alarm();
    rig_settle(r, BH_OUTCOME_FAILED, "507", 0);
    rig_await(r, BH_EVENT_BLOCKED);
    expect_counted(r, "backhop_consumers_ready", "", "0");
    end_alarm();
    rig_await(r, BH_EVENT_UNBLOCKED);
    expect_counted(r, "backhop_consumers_ready", "", "1");
    expect_ok(r->worker, bh_worker_stop(r->worker, 0));
    rig_await(r, BH_EVENT_DRAINED);
    expect_counted(r, "backhop_consumers_ready", "", "0");
    rig_free(r);
}
END_TEST

Suite *suite_seeing(void)
{
    Suite *suite = suite_create("seeing");
    TCase *cases = add_case(suite, "seeing");
    tcase_add_test(cases, a_message_that_fails_and_then_succeeds_is_seen_all_the_way);
    tcase_add_test(cases, a_worker_counts_once_for_metrics_that_tell_the_same_errors_apart);
    tcase_add_test(cases, what_is_parked_and_dropped_is_seen);
    tcase_add_test(cases, a_retry_by_the_broker_alone_is_seen);
    tcase_add_test(cases, nothing_is_told_of_each_message_and_nothing_is_counted_where_nobody_asks);
    tcase_add_test(cases, metrics_can_be_read_while_another_thread_sets_them);
    tcase_add_test(cases, F7_retries_that_come_back_early_are_an_event_once_a_minute);
    if (broker_can_be_controlled()) {
        long_case(add_test_with_end(suite, "a gauge", T3_a_gauge_has_the_workers_that_are_ready, end_alarm));
        long_case(
            add_test_with_end(suite, "copies", how_many_copies_are_unconfirmed_is_known_without_metrics, end_alarm));
    }
    return suite;
}
