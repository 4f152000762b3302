#include "../reading.h"
#include "suites.h"

#include <backhop/adapter/event.h>
#include <backhop/adapter.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bh_metrics *metrics;
static bh_event *event;

static void set_up(void)
{
    ck_assert_int_eq(bh_metrics_new(&metrics), BH_OK);
    ck_assert_int_eq(bh_event_new(&event, BH_EVENT_FAILED), BH_OK);
}

static void tear_down(void)
{
    bh_metrics_free(metrics);
    bh_event_free(event);
}

static void begin(bh_event_kind kind, const char *queue)
{
    ck_assert_int_eq(bh_event_begin(event, kind), BH_OK);
    ck_assert_int_eq(bh_event_set_string(event, BH_FIELD_QUEUE, bh_str(queue)), BH_OK);
}

static void observe(void)
{
    ck_assert_int_eq(bh_metrics_observe(metrics, event), BH_OK);
}

static void expect_sample(size_t index, int metric, double value, const char *first, const char *second)
{
    ck_assert_uint_lt(index, bh_metrics_sample_count(metrics));
    bh_sample sample;
    ck_assert_int_eq(bh_metrics_sample(metrics, index, &sample), BH_OK);
    ck_assert_int_eq(sample.metric, metric);
    ck_assert_double_eq(sample.value, value);
    ck_assert_str_eq(sample.labels[0].data, first);
    ck_assert_str_eq(sample.labels[1].data, second);
}

static void expect_text(const char *part)
{
    ck_assert_msg(strstr(bh_metrics_text(metrics).data, part) != NULL, "\"%s\" is not in:\n%s", part,
                  bh_metrics_text(metrics).data);
}

START_TEST(every_metric_has_names_a_unit_help_and_known_labels)
{
    for (int metric = 0; metric < BH_METRIC_LAST; metric++) {
        bh_metric_info info;
        ck_assert_int_eq(bh_metric_describe(metric, &info), BH_OK);
        const char *name = info.name.data;
        int is_counter = info.instrument == BH_INSTRUMENT_COUNTER;
        int is_histogram = info.instrument == BH_INSTRUMENT_HISTOGRAM;
        size_t size = strlen(name);
        ck_assert_uint_eq(strspn(name, "abcdefghijklmnopqrstuvwxyz_"), size);
        ck_assert_int_eq(size > 6 && strcmp(name + size - 6, "_total") == 0, is_counter);
        ck_assert_int_eq(size > 8 && strcmp(name + size - 8, "_seconds") == 0, strcmp(info.unit.data, "s") == 0);
        ck_assert_uint_gt(info.otel_name.size, 0);
        ck_assert_uint_gt(info.help.size, 0);
        ck_assert_int_eq(info.bucket_count > 0, is_histogram);
        for (size_t i = 1; i < info.bucket_count; i++)
            ck_assert(info.buckets[i - 1] < info.buckets[i]);
        for (size_t i = 0; i < info.label_count; i++) {
            ck_assert_uint_gt(info.labels[i].size, 0);
            ck_assert_uint_gt(info.otel_labels[i].size, 0);
        }
    }
    const int none[] = {-1, BH_METRIC_LAST};
    for (size_t i = 0; i < 2; i++) {
        bh_metric_info info;
        ck_assert_int_eq(bh_metric_describe(none[i], &info), BH_ERR_ARGUMENT);
        ck_assert_uint_eq(info.name.size, 0);
        ck_assert_uint_eq(info.otel_name.size, 0);
        ck_assert_uint_eq(info.unit.size, 0);
        ck_assert_uint_eq(info.help.size, 0);
        ck_assert_uint_eq(info.label_count, 0);
        ck_assert_uint_eq(info.bucket_count, 0);
    }
}
END_TEST

START_TEST(a_failure_and_its_retry_are_counted)
{
    begin(BH_EVENT_FAILED, "orders");
    bh_event_set_string(event, BH_FIELD_ERROR_CLASS, bh_str("TimeoutError"));
    bh_event_set_string(event, BH_FIELD_ERROR, bh_str("order 17 of mrs. x"));
    bh_event_set_string(event, BH_FIELD_ID, bh_str("17"));
    bh_event_set_int(event, BH_FIELD_DURATION, 1500);
    observe();
    ck_assert_uint_eq(bh_metrics_sample_count(metrics), 1);
    expect_sample(0, BH_METRIC_PROCESS_DURATION, 0.0015, "orders", "TimeoutError");

    begin(BH_EVENT_RETRIED, "orders");
    bh_event_set_string(event, BH_FIELD_ERROR_CLASS, bh_str("TimeoutError"));
    bh_event_set_int(event, BH_FIELD_DELAY, 4000);
    bh_event_set_int(event, BH_FIELD_DURATION, 2500);
    observe();
    ck_assert_uint_eq(bh_metrics_sample_count(metrics), 3);
    expect_sample(0, BH_METRIC_RETRIES, 1, "orders", "TimeoutError");
    expect_sample(1, BH_METRIC_RETRY_DELAY, 4, "orders", "");
    expect_sample(2, BH_METRIC_COPY_DURATION, 0.0025, "", "");

    begin(BH_EVENT_DELIVERED, "orders");
    bh_event_set_int(event, BH_FIELD_LATENESS, 12);
    observe();
    ck_assert_uint_eq(bh_metrics_sample_count(metrics), 1);
    expect_sample(0, BH_METRIC_RETRY_LATENESS, 0.012, "orders", "");

    begin(BH_EVENT_SUCCEEDED, "orders");
    bh_event_set_int(event, BH_FIELD_ATTEMPT, 2);
    bh_event_set_int(event, BH_FIELD_DURATION, 700);
    bh_event_set_int(event, BH_FIELD_RECOVERY, 4012);
    observe();
    ck_assert_uint_eq(bh_metrics_sample_count(metrics), 3);
    expect_sample(0, BH_METRIC_PROCESS_DURATION, 0.0007, "orders", "");
    expect_sample(1, BH_METRIC_ATTEMPTS, 2, "orders", "succeeded");
    expect_sample(2, BH_METRIC_RECOVERY_TIME, 4.012, "orders", "");

    expect_text("# HELP backhop_retries_total Messages that failed and come again.\n"
                "# TYPE backhop_retries_total counter\n"
                "backhop_retries_total{queue=\"orders\",error_type=\"TimeoutError\"} 1\n");
    expect_text(
        "# TYPE messaging_process_duration_seconds histogram\n"
        "messaging_process_duration_seconds_bucket{queue=\"orders\",error_type=\"TimeoutError\",le=\"0.001\"} 0\n"
        "messaging_process_duration_seconds_bucket{queue=\"orders\",error_type=\"TimeoutError\",le=\"0.005\"} 1\n");
    expect_text(
        "messaging_process_duration_seconds_bucket{queue=\"orders\",error_type=\"TimeoutError\",le=\"+Inf\"} 1\n"
        "messaging_process_duration_seconds_sum{queue=\"orders\",error_type=\"TimeoutError\"} 0.0015\n"
        "messaging_process_duration_seconds_count{queue=\"orders\",error_type=\"TimeoutError\"} 1\n");
    expect_text("backhop_copy_duration_seconds_sum 0.0025\nbackhop_copy_duration_seconds_count 1\n");
    expect_text("backhop_recovery_time_seconds_sum{queue=\"orders\"} 4.012\n");
    ck_assert_ptr_null(strstr(bh_metrics_text(metrics).data, "mrs"));
    ck_assert_ptr_null(strstr(bh_metrics_text(metrics).data, "17"));
}
END_TEST

START_TEST(a_deferral_is_no_retry)
{
    begin(BH_EVENT_THROTTLED, "orders");
    bh_event_set_string(event, BH_FIELD_ERROR_CLASS, bh_str("TooManyRequests"));
    bh_event_set_int(event, BH_FIELD_DURATION, 1500);
    observe();
    ck_assert_uint_eq(bh_metrics_sample_count(metrics), 1);
    expect_sample(0, BH_METRIC_PROCESS_DURATION, 0.0015, "orders", "TooManyRequests");

    begin(BH_EVENT_DEFERRED, "orders");
    bh_event_set_string(event, BH_FIELD_ERROR_CLASS, bh_str("TooManyRequests"));
    bh_event_set_int(event, BH_FIELD_DELAY, 30000);
    bh_event_set_int(event, BH_FIELD_DURATION, 2500);
    observe();
    ck_assert_uint_eq(bh_metrics_sample_count(metrics), 3);
    expect_sample(0, BH_METRIC_DEFERRED, 1, "orders", "TooManyRequests");
    expect_sample(1, BH_METRIC_RETRY_DELAY, 30, "orders", "");
    expect_sample(2, BH_METRIC_COPY_DURATION, 0.0025, "", "");
    ck_assert_ptr_null(strstr(bh_metrics_text(metrics).data, "backhop_retries_total{"));
}
END_TEST

START_TEST(how_messages_end_is_counted)
{
    begin(BH_EVENT_PARKED, "orders");
    bh_event_set_string(event, BH_FIELD_REASON, bh_str("exhausted"));
    bh_event_set_int(event, BH_FIELD_ATTEMPTS, 10);
    observe();
    expect_sample(0, BH_METRIC_PARKED, 1, "orders", "exhausted");
    expect_sample(1, BH_METRIC_ATTEMPTS, 10, "orders", "parked");
    begin(BH_EVENT_DROPPED, "orders");
    bh_event_set_int(event, BH_FIELD_ATTEMPT, 1);
    observe();
    ck_assert_uint_eq(bh_metrics_sample_count(metrics), 1); /* its duration is unknown */
    expect_sample(0, BH_METRIC_ATTEMPTS, 1, "orders", "dropped");
    begin(BH_EVENT_REPLAYED, "orders");
    bh_event_set_int(event, BH_FIELD_COUNT, 300);
    observe();
    expect_sample(0, BH_METRIC_REPLAYED, 300, "orders", "");
    expect_text("backhop_replayed_total{queue=\"orders\"} 300\n");
    expect_text("backhop_attempts_bucket{queue=\"orders\",outcome=\"parked\",le=\"10\"} 1\n");
    ck_assert_int_eq(bh_metrics_set(metrics, BH_METRIC_COPIES_UNCONFIRMED, 7), BH_OK);
    expect_text("# TYPE backhop_copies_unconfirmed gauge\nbackhop_copies_unconfirmed 7\n");
    for (int kind = 0; kind < BH_EVENT_LAST; kind++) { /* nothing is known but what happened */
        begin((bh_event_kind)kind, "orders");
        observe();
        ck_assert_uint_le(bh_metrics_sample_count(metrics), 1);
    }
}
END_TEST

/* A message that was read: `attempts` failed ones before, the first at 1000 ms, the last to come
 * again at 5000 ms. */
static bh_history *history_of(int64_t attempts)
{
    bh_delivery *delivery;
    bh_history *history;
    ck_assert_int_eq(bh_delivery_new(&delivery), BH_OK);
    ck_assert_int_eq(bh_history_new(&history), BH_OK);
    if (attempts > 0) {
        push_int(delivery, "backhop-attempts", attempts);
        push_int(delivery, "backhop-first-failure", 1000);
        push_int(delivery, "backhop-due", 5000);
    }
    ck_assert_int_eq(bh_history_read(history, delivery, NULL), BH_OK);
    bh_delivery_free(delivery);
    return history;
}

START_TEST(a_message_is_counted_at_its_end_as_its_events_would_be)
{
    const bh_event_kind ends[] = {BH_EVENT_SUCCEEDED, BH_EVENT_FAILED, BH_EVENT_DROPPED};
    bh_metrics *by_events;
    ck_assert_int_eq(bh_metrics_new(&by_events), BH_OK);
    for (int64_t attempts = 0; attempts < 3; attempts++) {
        bh_history *history = history_of(attempts);
        for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
            bh_bytes error_class = bh_str(ends[i] == BH_EVENT_FAILED ? "TimeoutError" : "");
            begin(BH_EVENT_DELIVERED, "orders");
            bh_event_set_history(event, history, 0, 5012);
            ck_assert_int_eq(bh_metrics_observe(by_events, event), BH_OK);
            begin(ends[i], "orders");
            bh_event_set_history(event, history, 0, 5020);
            bh_event_set_string(event, BH_FIELD_ERROR_CLASS, error_class);
            bh_event_set_int(event, BH_FIELD_DURATION, 8500);
            ck_assert_int_eq(bh_metrics_observe(by_events, event), BH_OK);
            ck_assert_int_eq(
                bh_metrics_count_message(metrics, ends[i], bh_str("orders"), history, 0, 5020, error_class, 8500),
                BH_OK);
        }
        bh_history_free(history);
    }
    ck_assert_str_eq(bh_metrics_text(metrics).data, bh_metrics_text(by_events).data);
    expect_text("backhop_retry_lateness_seconds_sum{queue=\"orders\"} 0.072\n"); /* six times 12 ms */
    expect_text("backhop_recovery_time_seconds_sum{queue=\"orders\"} 8.04\n");   /* twice 4020 ms */
    expect_text("backhop_attempts_sum{queue=\"orders\",outcome=\"succeeded\"} 6\n");
    bh_metrics_free(by_events);
}
END_TEST

START_TEST(a_success_after_failures_has_all_its_samples)
{
    bh_history *history = history_of(2);
    ck_assert_int_eq(
        bh_metrics_count_message(metrics, BH_EVENT_SUCCEEDED, bh_str("orders"), history, 0, 5020, bh_str(""), 8500),
        BH_OK);
    ck_assert_uint_eq(bh_metrics_sample_count(metrics), 4);
    expect_sample(0, BH_METRIC_RETRY_LATENESS, 0.012, "orders", "");
    expect_sample(1, BH_METRIC_PROCESS_DURATION, 0.0085, "orders", "");
    expect_sample(2, BH_METRIC_ATTEMPTS, 3, "orders", "succeeded");
    expect_sample(3, BH_METRIC_RECOVERY_TIME, 4.02, "orders", "");
    ck_assert_int_eq(
        bh_metrics_count_message(metrics, BH_EVENT_SUCCEEDED, bh_str("orders"), history, 1, 5020, bh_str(""), -1),
        BH_OK); /* redelivered, and for how long it was handled is unknown */
    ck_assert_uint_eq(bh_metrics_sample_count(metrics), 2);
    expect_sample(0, BH_METRIC_ATTEMPTS, 3, "orders", "succeeded");
    expect_sample(1, BH_METRIC_RECOVERY_TIME, 4.02, "orders", "");
    ck_assert_int_eq(
        bh_metrics_count_message(metrics, BH_EVENT_SUCCEEDED, bh_str("orders"), history, 0, 5020, bh_str(""), -1),
        BH_OK); /* when its handler began is unknown: so is how late that was */
    ck_assert_uint_eq(bh_metrics_sample_count(metrics), 2);
    expect_sample(0, BH_METRIC_ATTEMPTS, 3, "orders", "succeeded");
    bh_history_free(history);
}
END_TEST

START_TEST(a_copy_is_counted_as_its_event_would_be)
{
    ck_assert_int_eq(bh_metrics_count_copy(metrics, BH_EVENT_RETRIED, bh_str("orders"), 3, 4000, bh_str(""),
                                           bh_str("TimeoutError"), 2500),
                     BH_OK);
    ck_assert_uint_eq(bh_metrics_sample_count(metrics), 3);
    expect_sample(0, BH_METRIC_RETRIES, 1, "orders", "TimeoutError");
    expect_sample(1, BH_METRIC_RETRY_DELAY, 4, "orders", "");
    expect_sample(2, BH_METRIC_COPY_DURATION, 0.0025, "", "");
    ck_assert_int_eq(
        bh_metrics_count_copy(metrics, BH_EVENT_PARKED, bh_str("orders"), 10, 0, bh_str("exhausted"), bh_str(""), -1),
        BH_OK);
    ck_assert_uint_eq(bh_metrics_sample_count(metrics), 2);
    expect_sample(0, BH_METRIC_PARKED, 1, "orders", "exhausted");
    expect_sample(1, BH_METRIC_ATTEMPTS, 10, "orders", "parked");
}
END_TEST

START_TEST(what_is_no_end_of_a_message_or_a_copy_is_refused)
{
    bh_history *history = history_of(0);
    const bh_bytes none = {NULL, 0};
    for (int kind = -1; kind <= BH_EVENT_LAST; kind++) {
        int is_end = kind == BH_EVENT_SUCCEEDED || kind == BH_EVENT_FAILED || kind == BH_EVENT_THROTTLED ||
                     kind == BH_EVENT_DROPPED;
        int is_copied = kind == BH_EVENT_RETRIED || kind == BH_EVENT_DEFERRED || kind == BH_EVENT_PARKED;
        ck_assert_int_eq(
            bh_metrics_count_message(metrics, (bh_event_kind)kind, bh_str("orders"), history, 0, 5020, bh_str(""), 1),
            is_end ? BH_OK : BH_ERR_ARGUMENT);
        ck_assert_int_eq(
            bh_metrics_count_copy(metrics, (bh_event_kind)kind, bh_str("orders"), 1, 1, bh_str(""), bh_str(""), 1),
            is_copied ? BH_OK : BH_ERR_ARGUMENT);
    }
    const bh_event_kind end = BH_EVENT_FAILED, copied = BH_EVENT_RETRIED;
    const bh_bytes queue = bh_str("orders");
    ck_assert_int_eq(bh_metrics_count_message(NULL, end, queue, history, 0, 0, queue, 1), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_metrics_count_message(metrics, end, none, history, 0, 0, queue, 1), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_metrics_count_message(metrics, end, queue, NULL, 0, 0, queue, 1), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_metrics_count_message(metrics, end, queue, history, 0, 0, none, 1), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_metrics_count_copy(NULL, copied, queue, 1, 1, queue, queue, 1), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_metrics_count_copy(metrics, copied, none, 1, 1, queue, queue, 1), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_metrics_count_copy(metrics, copied, queue, 1, 1, none, queue, 1), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_metrics_count_copy(metrics, copied, queue, 1, 1, queue, none, 1), BH_ERR_ARGUMENT);
    bh_history_free(history);
}
END_TEST

static size_t lines_of(const char *text, const char *name)
{
    size_t count = 0;
    for (const char *line = text; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
        count += strncmp(line, name, strlen(name)) == 0;
    return count;
}

START_TEST(an_error_that_nobody_named_is_one_of_the_others)
{
    begin(BH_EVENT_RETRIED, "orders");
    observe();
    expect_sample(0, BH_METRIC_RETRIES, 1, "orders", "_OTHER");
    ck_assert_int_eq(bh_metrics_add_error_type(metrics, bh_str("TimeoutError")), BH_OK);
    ck_assert_int_eq(bh_metrics_add_error_type(metrics, bh_str("TimeoutError")), BH_OK);
    ck_assert_int_eq(bh_metrics_add_error_type(metrics, bh_str("")), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_metrics_add_error_type(metrics, bh_str("\xff")), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_metrics_add_error_type(metrics, bh_str("_OTHER")), BH_OK);
    bh_event_set_string(event, BH_FIELD_ERROR_CLASS, bh_str("ValueError"));
    observe();
    expect_sample(0, BH_METRIC_RETRIES, 1, "orders", "_OTHER");
    bh_event_set_string(event, BH_FIELD_ERROR_CLASS, bh_str("TimeoutError"));
    observe();
    expect_sample(0, BH_METRIC_RETRIES, 1, "orders", "TimeoutError");
    bh_event_set_string(event, BH_FIELD_ERROR_CLASS, bh_str("_OTHER"));
    observe();
    ck_assert_uint_eq(
        lines_of(bh_metrics_text(metrics).data, "backhop_retries_total{queue=\"orders\",error_type=\"_OTHER\"}"),
        1); /* named or not, it is one series */
    char name[16];
    for (int i = 1; i < BH_METRICS_MOST_ERROR_TYPES; i++) {
        snprintf(name, sizeof name, "E%d", i);
        ck_assert_int_eq(bh_metrics_add_error_type(metrics, bh_str(name)), BH_OK);
    }
    ck_assert_int_eq(bh_metrics_add_error_type(metrics, bh_str("one too many")), BH_ERR_ARGUMENT);
}
END_TEST

START_TEST(ten_thousand_ids_errors_and_queues_are_few_series)
{
    enum { MANY = 10000 };
    char name[64];
    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "Error%d", i);
        begin(BH_EVENT_RETRIED, i < MANY / 2 ? "orders" : name);
        bh_event_set_string(event, BH_FIELD_ERROR_CLASS, bh_str(name));
        bh_event_set_string(event, BH_FIELD_ERROR, bh_str(name));
        bh_event_set_string(event, BH_FIELD_ID, bh_str(name));
        bh_event_set_int(event, BH_FIELD_DELAY, i);
        observe();
        bh_event_begin(event, BH_EVENT_PARKED);
        bh_event_set_string(event, BH_FIELD_QUEUE, bh_str("orders"));
        bh_event_set_string(event, BH_FIELD_REASON, bh_str(name));
        observe();
    }
    const char *text = bh_metrics_text(metrics).data;
    ck_assert_uint_eq(lines_of(text, "backhop_retries_total{queue=\"orders\""), BH_METRICS_MOST_ERROR_TYPES + 1);
    ck_assert_uint_eq(lines_of(text, "backhop_retries_total{"),
                      BH_METRICS_MOST_ERROR_TYPES + 1 + BH_METRICS_MOST_QUEUES - 1 + 1);
    ck_assert_uint_eq(lines_of(text, "backhop_retry_delay_seconds_count{"), BH_METRICS_MOST_QUEUES + 1);
    ck_assert_uint_le(lines_of(text, "backhop_parked_total{"), 17);
    expect_text("backhop_retries_total{queue=\"_OTHER\",error_type=\"_OTHER\"}");
}
END_TEST

START_TEST(labels_are_escaped_and_absurd_values_are_bounded)
{
    begin(BH_EVENT_RETRIED, "a\"b\\c\nd");
    bh_event_set_string(event, BH_FIELD_ERROR_CLASS, bh_str("no UTF-8: \xff"));
    bh_event_set_int(event, BH_FIELD_DELAY, INT64_MAX);
    bh_event_set_int(event, BH_FIELD_DURATION, INT64_MIN);
    observe();
    expect_text("backhop_retries_total{queue=\"a\\\"b\\\\c\\nd\",error_type=\"_OTHER\"} 1\n");
    ck_assert_ptr_null(strstr(bh_metrics_text(metrics).data, "backhop_copy_duration_seconds"));
    for (int i = 0; i < 1000; i++)
        observe();
    expect_text("backhop_retry_delay_seconds_count{queue=\"a\\\"b\\\\c\\nd\"} 1001\n");
    begin(BH_EVENT_REPLAYED, "orders");
    bh_event_set_int(event, BH_FIELD_COUNT, -3);
    observe();
    ck_assert_uint_eq(bh_metrics_sample_count(metrics), 0);
}
END_TEST

/* Numbers in a message's headers are untrusted. */
START_TEST(what_headers_claim_adds_up_to_the_greatest_number_at_most)
{
    enum { MANY = 20000 };
    bh_history *absurd = history_of(1000000000);
    bh_metrics *sum;
    for (int i = 0; i < MANY; i++)
        ck_assert_int_eq(
            bh_metrics_count_message(metrics, BH_EVENT_SUCCEEDED, bh_str("orders"), absurd, 0, 5020, bh_str(""), 1),
            BH_OK);
    expect_text("backhop_attempts_sum{queue=\"orders\",outcome=\"succeeded\"} 9223372036854.775807\n");
    ck_assert_int_eq(bh_metrics_new(&sum), BH_OK);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(bh_metrics_add(sum, metrics), BH_OK);
    ck_assert_ptr_nonnull(strstr(bh_metrics_text(sum).data, "outcome=\"succeeded\"} 9223372036854.775807\n"));
    bh_metrics_free(sum);
    bh_history_free(absurd);
}
END_TEST

/* So long ago that no policy can have begun then. */
START_TEST(a_first_failure_of_long_ago_is_no_recovery)
{
    static const struct {
        int64_t now_ms;
        size_t samples;
    } cases[] = {{BH_POLICY_LONGEST_MS + 1000, 4}, {BH_POLICY_LONGEST_MS + 1001, 3}};
    bh_history *history = history_of(1); /* whose first failure was at 1000 ms */
    for (size_t i = 0; i < 2; i++) {
        ck_assert_int_eq(bh_metrics_count_message(metrics, BH_EVENT_SUCCEEDED, bh_str("orders"), history, 0,
                                                  cases[i].now_ms, bh_str(""), 1),
                         BH_OK);
        ck_assert_uint_eq(bh_metrics_sample_count(metrics), cases[i].samples);
    }
    bh_history_free(history);
}
END_TEST

START_TEST(what_others_counted_is_added)
{
    bh_metrics *sum;
    ck_assert_int_eq(bh_metrics_new(&sum), BH_OK);
    begin(BH_EVENT_RETRIED, "orders");
    bh_event_set_string(event, BH_FIELD_ERROR_CLASS, bh_str("TimeoutError"));
    bh_event_set_int(event, BH_FIELD_DELAY, 4000);
    observe();
    bh_metrics_set(metrics, BH_METRIC_COPIES_UNCONFIRMED, 2);
    ck_assert_int_eq(bh_metrics_add(sum, metrics), BH_OK);
    ck_assert_int_eq(bh_metrics_add(sum, metrics), BH_OK);
    ck_assert_int_eq(bh_metrics_add(metrics, metrics), BH_ERR_ARGUMENT);
    bh_metrics *kept = metrics;
    metrics = sum;
    expect_text("backhop_retries_total{queue=\"orders\",error_type=\"TimeoutError\"} 2\n");
    expect_text("backhop_retry_delay_seconds_sum{queue=\"orders\"} 8\n");
    expect_text("backhop_copies_unconfirmed 4\n");
    metrics = kept;
    bh_metrics_free(sum);
}
END_TEST

START_TEST(T3_consumers_that_are_ready_are_summed_by_queue)
{
    bh_metrics *sum;
    ck_assert_int_eq(bh_metrics_new(&sum), BH_OK);
    ck_assert_int_eq(bh_metrics_add_consumer(metrics, bh_str("orders"), 0), BH_OK);
    ck_assert_uint_eq(bh_metrics_sample_count(metrics), 1);
    expect_sample(0, BH_METRIC_CONSUMERS_READY, 0, "orders", "");
    expect_text("# TYPE backhop_consumers_ready gauge\nbackhop_consumers_ready{queue=\"orders\"} 0\n");
    ck_assert_int_eq(bh_metrics_add_consumer(metrics, bh_str("orders"), 1), BH_OK);
    ck_assert_int_eq(bh_metrics_add_consumer(metrics, bh_str("orders"), 2), BH_OK); /* any number but 0 */
    expect_sample(0, BH_METRIC_CONSUMERS_READY, 2, "orders", "");
    ck_assert_int_eq(bh_metrics_add_consumer(metrics, bh_str("mails"), 1), BH_OK);
    expect_sample(0, BH_METRIC_CONSUMERS_READY, 1, "mails", "");
    ck_assert_int_eq(bh_metrics_add(sum, metrics), BH_OK);
    ck_assert_ptr_nonnull(strstr(bh_metrics_text(sum).data, "backhop_consumers_ready{queue=\"orders\"} 2\n"));
    bh_metrics_free(sum);
}
END_TEST

/* For promtool, which tests/interface/seeing runs if it is installed. */
START_TEST(each_metric_of_each_event_is_text)
{
    const char *path = getenv("BACKHOP_METRICS_FILE");
    for (int kind = 0; kind < BH_EVENT_LAST; kind++) {
        begin((bh_event_kind)kind, "a\"b\\c\nd");
        bh_event_set_string(event, BH_FIELD_ERROR_CLASS, bh_str("TimeoutError"));
        bh_event_set_string(event, BH_FIELD_REASON, bh_str("exhausted"));
        for (int field = 0; field < BH_FIELD_LAST; field++)
            if (!bh_event_field_is_string(field))
                bh_event_set_int(event, (bh_field)field, 1234);
        observe();
    }
    ck_assert_int_eq(bh_metrics_set(metrics, BH_METRIC_COPIES_UNCONFIRMED, 7), BH_OK);
    ck_assert_int_eq(bh_metrics_add_consumer(metrics, bh_str("orders"), 1), BH_OK);
    for (int metric = 0; metric < BH_METRIC_LAST; metric++) {
        bh_metric_info info;
        ck_assert_int_eq(bh_metric_describe(metric, &info), BH_OK);
        expect_text(info.name.data);
    }
    FILE *out = path ? fopen(path, "w") : NULL;
    ck_assert(!path || (out && fputs(bh_metrics_text(metrics).data, out) >= 0 && fclose(out) == 0));
}
END_TEST

START_TEST(missing_arguments_are_refused)
{
    ck_assert_int_eq(bh_metrics_new(NULL), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_metrics_observe(metrics, NULL), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_metrics_observe(NULL, event), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_metrics_add(metrics, NULL), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_metrics_set(metrics, BH_METRIC_RETRIES, 1), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_metrics_set(metrics, BH_METRIC_LAST, 1), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_metrics_set(metrics, BH_METRIC_CONSUMERS_READY, 1), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_metrics_add_consumer(NULL, bh_str("orders"), 1), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_metrics_add_consumer(metrics, (bh_bytes){NULL, 0}, 1), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_metrics_add_error_type(NULL, bh_str("E")), BH_ERR_ARGUMENT);
    ck_assert_str_eq(bh_metrics_text(metrics).data, "");
    ck_assert_str_eq(bh_metrics_text(NULL).data, "");
    bh_sample sample;
    ck_assert_int_eq(bh_metrics_sample(metrics, 0, &sample), BH_ERR_ARGUMENT);
    ck_assert_double_eq(sample.value, 0);
    ck_assert_uint_eq(sample.labels[0].size, 0);
    ck_assert_int_eq(bh_metrics_sample(metrics, 0, NULL), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_metrics_sample(NULL, 0, &sample), BH_ERR_ARGUMENT);
    bh_metrics_free(NULL);
}
END_TEST

Suite *suite_metrics(void)
{
    Suite *suite = suite_create("metrics");
    TCase *calls = tcase_create("calls");
    tcase_add_checked_fixture(calls, set_up, tear_down);
    tcase_add_test(calls, every_metric_has_names_a_unit_help_and_known_labels);
    tcase_add_test(calls, a_failure_and_its_retry_are_counted);
    tcase_add_test(calls, a_deferral_is_no_retry);
    tcase_add_test(calls, how_messages_end_is_counted);
    tcase_add_test(calls, a_message_is_counted_at_its_end_as_its_events_would_be);
    tcase_add_test(calls, a_success_after_failures_has_all_its_samples);
    tcase_add_test(calls, a_copy_is_counted_as_its_event_would_be);
    tcase_add_test(calls, what_is_no_end_of_a_message_or_a_copy_is_refused);
    tcase_add_test(calls, an_error_that_nobody_named_is_one_of_the_others);
    tcase_add_test(calls, ten_thousand_ids_errors_and_queues_are_few_series);
    tcase_add_test(calls, labels_are_escaped_and_absurd_values_are_bounded);
    tcase_add_test(calls, what_headers_claim_adds_up_to_the_greatest_number_at_most);
    tcase_add_test(calls, a_first_failure_of_long_ago_is_no_recovery);
    tcase_add_test(calls, what_others_counted_is_added);
    tcase_add_test(calls, T3_consumers_that_are_ready_are_summed_by_queue);
    tcase_add_test(calls, each_metric_of_each_event_is_text);
    tcase_add_test(calls, missing_arguments_are_refused);
    suite_add_tcase(suite, calls);
    return suite;
}
