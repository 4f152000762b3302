/*
 * Metrics: what events add up to, by one table of metrics for every language.
 *
 *     bh_metrics *metrics;
 *     bh_metrics_new(&metrics);
 *     bh_metrics_observe(metrics, event);          for each event
 *     puts(bh_metrics_text(metrics).data);         for Prometheus to scrape
 *
 * A program that has a metrics library of its own makes its instruments from the table, and after each observation hands
 * the samples on: what to count, how much, with which labels.
 *
 *     for (size_t i = 0; i < bh_metrics_sample_count(metrics); i++)
 *         the instrument of bh_metrics_sample_metric(metrics, i): add, set or record bh_metrics_sample_value(metrics, i)
 *
 * Labels are bounded, whatever messages and handlers say: no id, no routing key, no text of an error is ever one; of
 * classes of errors and of queues only so many are told apart, and the rest is "_OTHER".
 */
#ifndef BACKHOP_METRICS_H
#define BACKHOP_METRICS_H

#include <backhop/event.h>

BH_BEGIN_DECLS

#define BH_METRICS_MOST_ERROR_TYPES 32 /* the first that are seen, where none were named */
#define BH_METRICS_MOST_QUEUES 100
#define BH_METRICS_OTHER "_OTHER"

typedef enum bh_instrument {
    BH_INSTRUMENT_COUNTER,  /* add the sample's value */
    BH_INSTRUMENT_GAUGE,    /* set it */
    BH_INSTRUMENT_HISTOGRAM /* record it */
} bh_instrument;

/*
 * X(name, "prometheus_name", "opentelemetry.name", "unit", instrument, buckets, "label", "label", "help"): every metric
 * there is. The unit is UCUM's, as OpenTelemetry has it. "": no such label.
 */
#define BH_METRIC_LIST(X)                                                                                              \
    X(BH_METRIC_PROCESS_DURATION, "messaging_process_duration_seconds", "messaging.process.duration", "s", HISTOGRAM,  \
      FAST, "queue", "error_type", "How long handlers took; error_type is empty where they succeeded.")                \
    X(BH_METRIC_RETRIES, "backhop_retries_total", "backhop.retries", "{message}", COUNTER, NONE, "queue",              \
      "error_type", "Messages that failed and come again.")                                                            \
    X(BH_METRIC_PARKED, "backhop_parked_total", "backhop.parked", "{message}", COUNTER, NONE, "queue", "reason",       \
      "Messages that were parked.")                                                                                    \
    X(BH_METRIC_REPLAYED, "backhop_replayed_total", "backhop.replayed", "{message}", COUNTER, NONE, "queue", "",       \
      "Parked messages that went back to their work queue.")                                                           \
    X(BH_METRIC_RETRY_LATENESS, "backhop_retry_lateness_seconds", "backhop.retry.lateness", "s", HISTOGRAM, FAST,      \
      "queue", "", "How much later than due retries came back to a handler.")                                          \
    X(BH_METRIC_RETRY_DELAY, "backhop_retry_delay_seconds", "backhop.retry.delay", "s", HISTOGRAM, SLOW, "queue", "",  \
      "How long messages wait before they come again.")                                                                \
    X(BH_METRIC_ATTEMPTS, "backhop_attempts", "backhop.attempts", "{attempt}", HISTOGRAM, COUNTS, "queue", "outcome",  \
      "How many attempts messages took, by how they ended: succeeded, parked, dropped.")                               \
    X(BH_METRIC_RECOVERY_TIME, "backhop_recovery_time_seconds", "backhop.recovery.time", "s", HISTOGRAM, SLOW,         \
      "queue", "", "From a message's first failure to its success.")                                                   \
    X(BH_METRIC_COPY_DURATION, "backhop_copy_duration_seconds", "backhop.copy.duration", "s", HISTOGRAM, FAST, "", "", \
      "From a copy's publish to its confirm.")                                                                         \
    X(BH_METRIC_COPIES_UNCONFIRMED, "backhop_copies_unconfirmed", "backhop.copies.unconfirmed", "{message}", GAUGE,    \
      NONE, "", "", "Copies that are not confirmed yet; their originals are unacknowledged.")

#define BH_METRIC_ENUM(name, prometheus, opentelemetry, unit, instrument, buckets, label, second, help) name,
typedef enum bh_metric { BH_METRIC_LIST(BH_METRIC_ENUM) BH_METRIC_LAST } bh_metric;
#undef BH_METRIC_ENUM

/* The table; "" and 0 for a number that is no metric's. */
BH_API bh_bytes bh_metric_name(int metric);
BH_API bh_bytes bh_metric_otel_name(int metric);
BH_API bh_bytes bh_metric_unit(int metric);
BH_API bh_bytes bh_metric_help(int metric);
BH_API bh_instrument bh_metric_instrument(int metric);
/* Its labels, as Prometheus names them; and as OpenTelemetry's attributes, as "messaging.destination.name". */
BH_API size_t bh_metric_label_count(int metric);
BH_API bh_bytes bh_metric_label(int metric, size_t index);
BH_API bh_bytes bh_metric_otel_label(int metric, size_t index);
/* A histogram's upper bounds, ascending, without the infinite one. */
BH_API size_t bh_metric_bucket_count(int metric);
BH_API double bh_metric_bucket(int metric, size_t index);

typedef struct bh_metrics bh_metrics;

/* New metrics, of nothing, in *out; free them with bh_metrics_free. BH_ERR_NO_MEMORY, BH_ERR_ARGUMENT. */
BH_API bh_status bh_metrics_new(bh_metrics **out);
/* Frees them; NULL is allowed. */
BH_API void bh_metrics_free(bh_metrics *self);
/* Names a class of errors to be told apart: once one is named, only those that are. At most BH_METRICS_MOST_ERROR_TYPES.
 * BH_ERR_ARGUMENT (more; empty; no UTF-8), BH_ERR_NO_MEMORY. */
BH_API bh_status bh_metrics_add_error_type(bh_metrics *self, bh_bytes error_class);

/* Counts an event; one that tells nothing to count has no samples. BH_ERR_ARGUMENT, BH_ERR_NO_MEMORY (it is not
 * counted). */
BH_API bh_status bh_metrics_observe(bh_metrics *self, const bh_event *event);
/*
 * Counts a message that was handled, at the end of that: what its events BH_EVENT_DELIVERED and `kind` (bh_event_of) tell, in
 * one call and without making them. `redelivered`: of the delivery; now_ms: since the epoch; error_class: as "TimeoutError",
 * "" for none; duration_us: how long the handler took, below 0 where that is unknown: then how late it came is not counted.
 * BH_ERR_ARGUMENT (also another kind than succeeded, failed and dropped), BH_ERR_NO_MEMORY (it is not counted).
 */
BH_API bh_status bh_metrics_count_message(bh_metrics *self, bh_event_kind kind, bh_bytes queue,
                                          const bh_history *history, int redelivered, int64_t now_ms,
                                          bh_bytes error_class, int64_t duration_us);
/* Counts a copy that is safe, likewise: BH_EVENT_RETRIED or BH_EVENT_PARKED (bh_event_of_copy), attempts, delay and reason as its
 * plan has them; duration_us: from its publish to its confirm. */
BH_API bh_status bh_metrics_count_copy(bh_metrics *self, bh_event_kind kind, bh_bytes queue, int64_t attempts,
                                       int64_t delay_ms, bh_bytes reason, bh_bytes error_class, int64_t duration_us);
/* Sets a gauge without labels, as how many copies are unconfirmed (bh_ledger_copies). BH_ERR_ARGUMENT (no such gauge),
 * BH_ERR_NO_MEMORY. */
BH_API bh_status bh_metrics_set(bh_metrics *self, bh_metric metric, int64_t value);
/* Adds what others counted: counters, histograms and gauges alike. BH_ERR_ARGUMENT, BH_ERR_NO_MEMORY (a part of it may be
 * missing). */
BH_API bh_status bh_metrics_add(bh_metrics *self, const bh_metrics *others);

/* What the last event, message or copy counted, valid until the next: seconds, or numbers of messages; and the labels' values
 * in the order of bh_metric_label, "" for one that does not apply. */
BH_API size_t bh_metrics_sample_count(const bh_metrics *self);
BH_API int bh_metrics_sample_metric(const bh_metrics *self, size_t index);
BH_API double bh_metrics_sample_value(const bh_metrics *self, size_t index);
BH_API bh_bytes bh_metrics_sample_label(const bh_metrics *self, size_t index, size_t label);

/* Everything in Prometheus' text format (0.0.4), valid until the next call on it; without memory it ends early. */
BH_API bh_bytes bh_metrics_text(bh_metrics *self);

BH_END_DECLS

#endif
