/* The samples of events, handled messages and copies. */
#include "events/metrics_data.h"

#include "history/internal.h"

#include <backhop/adapter/event.h>

/* The facts of an event that metrics count. A number below 0 is unknown. */
typedef struct facts {
    bh_event_kind kind;
    bh_bytes queue;
    bh_bytes error_class;
    bh_bytes reason;
    bh_bytes breaker;
    int64_t attempt;
    int64_t attempts;
    int64_t count;
    int64_t delay_ms;
    int64_t lateness_ms;
    int64_t recovery_ms;
    int64_t duration_us;
} facts;

/*
 * Adds a sample of the metric, with the queue and the value of its second label. False: no memory.
 *
 * value: in millionths for a histogram. A negative value adds no sample.
 */
static int add_sample(bh_metrics *self, bh_metric metric, const facts *of, bh_bytes second, int64_t value)
{
    const bh_bytes names_of[BH_METRICS_MOST_LABELS] = {of->queue, second};
    size_t values[BH_METRICS_MOST_LABELS] = {BH__VALUE_EMPTY, BH__VALUE_EMPTY};
    if (value < 0)
        return 1;
    for (size_t i = 0; i < BH_METRICS_MOST_LABELS && i < bh__metric_label_count(metric); i++)
        if (!bh__metrics_find_value(self, bh__metric_label(metric, i), names_of[i], &values[i]))
            return 0;
    bh__sample *added = &self->samples[self->sample_count];
    added->value = value < INT64_C(1) << 53 ? value : INT64_C(1) << 53;
    if (!bh__metrics_find_series(self, metric, values, &added->series))
        return 0;
    self->sample_count++;
    return 1;
}

static void count_value(bh__series *self, int64_t value)
{
    size_t bucket = 0;
    if (self->metric == BH_METRIC_BREAKER_STATE) {
        self->count = value;
        return;
    }
    if (bh__metric_table[self->metric].instrument != BH_INSTRUMENT_HISTOGRAM) {
        self->count = bh__metrics_sum(self->count, value);
        return;
    }
    while (bucket < bh__metric_table[self->metric].bucket_count &&
           value > bh__metric_table[self->metric].buckets[bucket])
        bucket++;
    self->buckets[bucket]++;
    self->count++;
    self->sum = bh__metrics_sum(self->sum, value);
}

/* ------------------------------------------------------------------------------------ observing */

/* Returns number * each, at most 2^53, or -1 if number is negative. */
static int64_t millionths(int64_t number, int64_t each)
{
    int64_t most = (INT64_C(1) << 53) / each;
    return number < 0 ? -1 : number < most ? number * each : most * each;
}

static int add_handled(bh_metrics *self, const facts *of, const char *outcome)
{
    return add_sample(self, BH_METRIC_PROCESS_DURATION, of, bh_str(""), of->duration_us) &&
           add_sample(self, BH_METRIC_ATTEMPTS, of, bh_str(outcome), millionths(of->attempt, BH__MILLION));
}

/* Returns the class of the handler's error, or BH_METRICS_OTHER if it has no name. */
static bh_bytes error_type(const facts *of)
{
    return of->error_class.size ? of->error_class : bh_str(BH_METRICS_OTHER);
}

static int add_copied(bh_metrics *self, const facts *of)
{
    return add_sample(self, BH_METRIC_COPY_DURATION, of, bh_str(""), of->duration_us);
}

/* Adds the samples of an event. False: no memory. */
static int add_samples(bh_metrics *self, const facts *of)
{
    switch (of->kind) {
    case BH_EVENT_DELIVERED:
        return add_sample(self, BH_METRIC_RETRY_LATENESS, of, bh_str(""), millionths(of->lateness_ms, 1000));
    case BH_EVENT_SUCCEEDED:
        return add_handled(self, of, "succeeded") &&
               add_sample(self, BH_METRIC_RECOVERY_TIME, of, bh_str(""), millionths(of->recovery_ms, 1000));
    case BH_EVENT_DROPPED:
        return add_handled(self, of, "dropped");
    case BH_EVENT_FAILED:
    case BH_EVENT_THROTTLED:
        return add_sample(self, BH_METRIC_PROCESS_DURATION, of, error_type(of), of->duration_us);
    case BH_EVENT_RETRIED:
    case BH_EVENT_DEFERRED:
        return add_sample(self, of->kind == BH_EVENT_RETRIED ? BH_METRIC_RETRIES : BH_METRIC_DEFERRED, of,
                          error_type(of), 1) &&
               add_sample(self, BH_METRIC_RETRY_DELAY, of, bh_str(""), millionths(of->delay_ms, 1000)) &&
               add_copied(self, of);
    case BH_EVENT_PARKED:
        return add_sample(self, BH_METRIC_PARKED, of, of->reason, 1) &&
               add_sample(self, BH_METRIC_ATTEMPTS, of, bh_str("parked"), millionths(of->attempts, BH__MILLION)) &&
               add_copied(self, of);
    case BH_EVENT_REPLAYED:
        return of->count <= 0 || add_sample(self, BH_METRIC_REPLAYED, of, bh_str(""), of->count);
    case BH_EVENT_BREAKER_CLOSED:
        return add_sample(self, BH_METRIC_BREAKER_STATE, of, of->breaker, 0);
    case BH_EVENT_BREAKER_HALF_OPEN:
        return add_sample(self, BH_METRIC_BREAKER_STATE, of, of->breaker, 1);
    case BH_EVENT_BREAKER_OPENED:
        return add_sample(self, BH_METRIC_BREAKER_STATE, of, of->breaker, 2);
    default:
        return 1;
    }
}

/* Counts the added samples. Counts none of them if not all could be added. */
static bh_status count_samples(bh_metrics *self, int are_all)
{
    if (!are_all) {
        self->sample_count = 0;
        return BH_ERR_NO_MEMORY;
    }
    for (size_t i = 0; i < self->sample_count; i++)
        count_value(&self->series[self->samples[i].series], self->samples[i].value);
    return BH_OK;
}

static int64_t known_int(const bh_event *event, bh_field field)
{
    return bh_event_has(event, field) ? bh_event_int(event, field) : -1;
}

bh_status bh_metrics_observe(bh_metrics *self, const bh_event *event)
{
    if (!self || !event)
        return BH_ERR_ARGUMENT;
    const facts of = {.kind = bh_event_what(event),
                      .queue = bh_event_string(event, BH_FIELD_QUEUE),
                      .error_class = bh_event_string(event, BH_FIELD_ERROR_CLASS),
                      .reason = bh_event_string(event, BH_FIELD_REASON),
                      .breaker = bh_event_string(event, BH_FIELD_BREAKER),
                      .attempt = known_int(event, BH_FIELD_ATTEMPT),
                      .attempts = known_int(event, BH_FIELD_ATTEMPTS),
                      .count = known_int(event, BH_FIELD_COUNT),
                      .delay_ms = known_int(event, BH_FIELD_DELAY),
                      .lateness_ms = known_int(event, BH_FIELD_LATENESS),
                      .recovery_ms = known_int(event, BH_FIELD_RECOVERY),
                      .duration_us = known_int(event, BH_FIELD_DURATION)};
    self->sample_count = 0;
    return count_samples(self, add_samples(self, &of));
}

bh_status bh_metrics_count_message(bh_metrics *self, bh_event_kind kind, bh_bytes queue, const bh_history *history,
                                   int redelivered, int64_t now_ms, bh_bytes error_class, int64_t duration_us)
{
    const int is_end =
        kind == BH_EVENT_SUCCEEDED || kind == BH_EVENT_FAILED || kind == BH_EVENT_THROTTLED || kind == BH_EVENT_DROPPED;
    if (!self || !is_end || !queue.data || !history || !error_class.data)
        return BH_ERR_ARGUMENT;
    int64_t lateness_ms = -1; /* unknown if the start of its handler is unknown */
    if (duration_us >= 0)
        lateness_ms = bh_history_lateness_ms(history, redelivered, now_ms - duration_us / 1000);
    const facts delivered = {.kind = BH_EVENT_DELIVERED, .queue = queue, .lateness_ms = lateness_ms};
    const facts ended = {.kind = kind,
                         .queue = queue,
                         .error_class = error_class,
                         .attempt = bh__history_attempts(history) + 1,
                         .recovery_ms = bh__history_recovery_ms(history, now_ms),
                         .duration_us = duration_us};
    self->sample_count = 0;
    return count_samples(self, add_samples(self, &delivered) && add_samples(self, &ended));
}

bh_status bh_metrics_count_copy(bh_metrics *self, bh_event_kind kind, bh_bytes queue, int64_t attempts,
                                int64_t delay_ms, bh_bytes reason, bh_bytes error_class, int64_t duration_us)
{
    const int is_copied = kind == BH_EVENT_RETRIED || kind == BH_EVENT_DEFERRED || kind == BH_EVENT_PARKED;
    if (!self || !is_copied || !queue.data || !reason.data || !error_class.data)
        return BH_ERR_ARGUMENT;
    const facts of = {.kind = kind,
                      .queue = queue,
                      .error_class = error_class,
                      .reason = reason,
                      .attempts = attempts,
                      .delay_ms = delay_ms > 0 ? delay_ms : -1,
                      .duration_us = duration_us};
    self->sample_count = 0;
    return count_samples(self, add_samples(self, &of));
}

bh_status bh_metrics_add_consumer(bh_metrics *self, bh_bytes queue, int is_ready)
{
    if (!self || !queue.data)
        return BH_ERR_ARGUMENT;
    const facts of = {.queue = queue};
    self->sample_count = 0;
    bh_status status = count_samples(self, add_sample(self, BH_METRIC_CONSUMERS_READY, &of, bh_str(""), is_ready != 0));
    if (status == BH_OK)
        self->samples[0].value = self->series[self->samples[0].series].count;
    return status;
}

/* --- samples */

size_t bh_metrics_sample_count(const bh_metrics *self)
{
    return self ? self->sample_count : 0;
}

bh_status bh_metrics_sample(const bh_metrics *self, size_t index, bh_sample *out)
{
    if (!out)
        return BH_ERR_ARGUMENT;
    memset(out, 0, sizeof *out);
    if (index >= bh_metrics_sample_count(self))
        return BH_ERR_ARGUMENT;
    const bh__sample *sample = &self->samples[index];
    const bh__series *of = &self->series[sample->series];
    int is_histogram = bh__metric_table[of->metric].instrument == BH_INSTRUMENT_HISTOGRAM;
    out->metric = (bh_metric)of->metric;
    out->value = is_histogram ? (double)sample->value / BH__MILLION : (double)sample->value;
    for (size_t i = 0; i < BH_METRICS_MOST_LABELS; i++)
        out->labels[i] = i < bh__metric_label_count(of->metric) ? bh__metrics_value_name(self, of, i) : bh_str("");
    return BH_OK;
}
