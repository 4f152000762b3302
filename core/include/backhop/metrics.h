/*
 * Metrics: counters, gauges and histograms that are computed from events. One
 * table of metrics serves every language.
 *
 *     bh_metrics *metrics;
 *     bh_metrics_new(&metrics);
 *     bh_metrics_observe(metrics, event);          for each event
 *     puts(bh_metrics_text(metrics).data);         for Prometheus to scrape
 *
 * If your program has a metrics library, create its instruments from the table.
 * After each event, pass the samples on: which metric, which value, which
 * labels.
 *
 *     bh_sample sample;
 *     for (size_t i = 0; i < bh_metrics_sample_count(metrics); i++)
 *         if (bh_metrics_sample(metrics, i, &sample) == BH_OK)
 *             add, set or record sample.value on the instrument of sample.metric
 *
 * The number of label values is bounded. No id, routing key or error text
 * becomes a label. Only so many error classes and queues are distinguished; all
 * others count as "_OTHER".
 */
#ifndef BACKHOP_METRICS_H
#define BACKHOP_METRICS_H

#include <backhop/event.h>

BH_BEGIN_DECLS

#define BH_METRICS_MOST_ERROR_TYPES 32 /* the first ones that occur, if you name none */
#define BH_METRICS_MOST_QUEUES 100
#define BH_METRICS_MOST_LABELS 2   /* of one metric */
#define BH_METRICS_MOST_BUCKETS 15 /* of one histogram, the infinite one is not counted */
#define BH_METRICS_OTHER "_OTHER"

typedef enum bh_instrument {
    BH_INSTRUMENT_COUNTER,  /* add the sample's value */
    BH_INSTRUMENT_GAUGE,    /* set it */
    BH_INSTRUMENT_HISTOGRAM /* record it */
} bh_instrument;

/*
 * All metrics: X(name, "prometheus_name", "opentelemetry.name", "unit",
 * instrument, buckets, "label", "label", "help"). Units are UCUM codes, as in
 * OpenTelemetry. A label "" is absent.
 */
#define BH_METRIC_LIST(X)                                                                                              \
    X(BH_METRIC_PROCESS_DURATION, "messaging_process_duration_seconds", "messaging.process.duration", "s", HISTOGRAM,  \
      FAST, "queue", "error_type", "Duration of handlers; error_type is empty if the handler succeeded.")              \
    X(BH_METRIC_RETRIES, "backhop_retries_total", "backhop.retries", "{message}", COUNTER, NONE, "queue",              \
      "error_type", "Messages that failed and come again.")                                                            \
    X(BH_METRIC_DEFERRED, "backhop_deferred_total", "backhop.deferred", "{message}", COUNTER, NONE, "queue",           \
      "error_type", "Messages that wait because the downstream is busy; these are no attempts.")                       \
    X(BH_METRIC_PARKED, "backhop_parked_total", "backhop.parked", "{message}", COUNTER, NONE, "queue", "reason",       \
      "Messages that were parked.")                                                                                    \
    X(BH_METRIC_REPLAYED, "backhop_replayed_total", "backhop.replayed", "{message}", COUNTER, NONE, "queue", "",       \
      "Parked messages that were replayed to their work queue.")                                                       \
    X(BH_METRIC_RETRY_LATENESS, "backhop_retry_lateness_seconds", "backhop.retry.lateness", "s", HISTOGRAM, FAST,      \
      "queue", "", "How much later than due a retry reached a handler.")                                               \
    X(BH_METRIC_RETRY_DELAY, "backhop_retry_delay_seconds", "backhop.retry.delay", "s", HISTOGRAM, SLOW, "queue", "",  \
      "Delay of messages before their next attempt.")                                                                  \
    X(BH_METRIC_ATTEMPTS, "backhop_attempts", "backhop.attempts", "{attempt}", HISTOGRAM, COUNTS, "queue", "outcome",  \
      "Attempts per message, by its end: succeeded, parked, dropped.")                                                 \
    X(BH_METRIC_RECOVERY_TIME, "backhop_recovery_time_seconds", "backhop.recovery.time", "s", HISTOGRAM, SLOW,         \
      "queue", "", "Time from a message's first failure to its success.")                                              \
    X(BH_METRIC_COPY_DURATION, "backhop_copy_duration_seconds", "backhop.copy.duration", "s", HISTOGRAM, FAST, "", "", \
      "Time from a copy's publish to its confirm.")                                                                    \
    X(BH_METRIC_BREAKER_STATE, "backhop_breaker_state", "backhop.breaker.state", "{state}", GAUGE, NONE, "queue",      \
      "breaker", "State of a queue's circuit breaker: 0 closed, 1 half-open, 2 open.")                                 \
    X(BH_METRIC_COPIES_UNCONFIRMED, "backhop_copies_unconfirmed", "backhop.copies.unconfirmed", "{message}", GAUGE,    \
      NONE, "", "", "Copies that are not confirmed yet; their originals are unacknowledged.")                          \
    X(BH_METRIC_CONSUMERS_READY, "backhop_consumers_ready", "backhop.consumers.ready", "{consumer}", GAUGE, NONE,      \
      "queue", "", "Workers and consumers that are ready; 0 if all start, reconnect, are paused or have stopped.")

#define BH_METRIC_ENUM(name, prometheus, opentelemetry, unit, instrument, buckets, label, second, help) name,
typedef enum bh_metric { BH_METRIC_LIST(BH_METRIC_ENUM) BH_METRIC_LAST } bh_metric;
#undef BH_METRIC_ENUM

/* A row of the table of metrics. */
typedef struct bh_metric_info {
    bh_bytes name; /* for Prometheus */
    bh_bytes otel_name;
    bh_bytes unit;
    bh_bytes help;
    bh_instrument instrument;
    bh_bytes labels[BH_METRICS_MOST_LABELS];      /* for Prometheus */
    bh_bytes otel_labels[BH_METRICS_MOST_LABELS]; /* for OpenTelemetry, as attributes */
    size_t label_count;
    double buckets[BH_METRICS_MOST_BUCKETS]; /* upper bounds, ascending */
    size_t bucket_count;                     /* 0 if the instrument is no histogram */
} bh_metric_info;

/*
 * Describes a metric in *out.
 *
 * Errors: BH_ERR_ARGUMENT if there is no such metric. *out then is zeroed.
 */
BH_API bh_status bh_metric_describe(int metric, bh_metric_info *out);

typedef struct bh_metrics bh_metrics;

/*
 * Creates empty metrics in *out. Free them with bh_metrics_free.
 *
 * Errors: BH_ERR_ARGUMENT; BH_ERR_NO_MEMORY.
 */
BH_API bh_status bh_metrics_new(bh_metrics **out);
/* Frees the metrics. NULL is allowed. */
BH_API void bh_metrics_free(bh_metrics *self);
/*
 * Names an error class to distinguish. After the first call, only named classes
 * are distinguished.
 *
 * error_class: UTF-8, not empty.
 * Errors: BH_ERR_ARGUMENT, also if BH_METRICS_MOST_ERROR_TYPES are named;
 * BH_ERR_NO_MEMORY.
 */
BH_API bh_status bh_metrics_add_error_type(bh_metrics *self, bh_bytes error_class);

/*
 * Counts an event. Some events have no samples.
 *
 * Errors: BH_ERR_ARGUMENT; BH_ERR_NO_MEMORY. The event then is not counted.
 */
BH_API bh_status bh_metrics_observe(bh_metrics *self, const bh_event *event);
/*
 * Sets a gauge without labels, for example BH_METRIC_COPIES_UNCONFIRMED.
 *
 * Errors: BH_ERR_ARGUMENT if the metric is no such gauge; BH_ERR_NO_MEMORY.
 */
BH_API bh_status bh_metrics_set(bh_metrics *self, bh_metric metric, int64_t value);
/*
 * Adds a worker or consumer to BH_METRIC_CONSUMERS_READY of its queue. Its sample has the sum.
 *
 * Call it for each consumer when you write the text, on metrics that you made for that text. The
 * metrics of a worker (bh_worker_read_metrics) have the worker already.
 *
 * is_ready: whether its state is BH_HEALTH_READY.
 * Errors: BH_ERR_ARGUMENT; BH_ERR_NO_MEMORY.
 */
BH_API bh_status bh_metrics_add_consumer(bh_metrics *self, bh_bytes queue, int is_ready);
/*
 * Adds the counts of other metrics: counters, histograms and gauges. The higher of two breaker
 * states is kept.
 *
 * Errors: BH_ERR_ARGUMENT; BH_ERR_NO_MEMORY. Then only a part may be added.
 */
BH_API bh_status bh_metrics_add(bh_metrics *self, const bh_metrics *others);

/* A sample: one value for one instrument. Strings are valid until the metrics change. */
typedef struct bh_sample {
    bh_metric metric;
    double value;                            /* seconds, or a number of messages or attempts */
    bh_bytes labels[BH_METRICS_MOST_LABELS]; /* values, as ordered in bh_metric_info */
} bh_sample;

/* Returns the number of samples of the last event, message or copy. */
BH_API size_t bh_metrics_sample_count(const bh_metrics *self);
/*
 * Writes one of these samples to *out.
 *
 * index: below bh_metrics_sample_count.
 * Errors: BH_ERR_ARGUMENT. *out then is zeroed.
 */
BH_API bh_status bh_metrics_sample(const bh_metrics *self, size_t index, bh_sample *out);

/*
 * Returns all metrics in Prometheus' text format (0.0.4), valid until the next
 * call on `self`. The text ends early if memory runs out.
 */
BH_API bh_bytes bh_metrics_text(bh_metrics *self);

BH_END_DECLS

#endif
