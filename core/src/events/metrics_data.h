/*
 * Metrics: the data that its sources share. Internal.
 *
 *     metrics_table    the table of metrics and of their labels
 *     metrics_series   a new object, label values, the series that are counted, sums of two objects
 *     metrics_count    the samples of an event, a handled message or a copy
 *     metrics_text     all series in Prometheus' text format
 */
#ifndef BACKHOP_METRICS_DATA_H
#define BACKHOP_METRICS_DATA_H

#include "base/memory.h"
#include "base/report.h"
#include "events/metrics.h"

enum {
    BH__METRIC_SAMPLES = 4, /* of one event, or of a delivery and its success, at most */
    BH__MILLION = 1000000   /* histograms count in millionths: of a second, of an attempt */
};

/* Labels. */
typedef enum bh__label {
    BH__LABEL_QUEUE,
    BH__LABEL_ERROR_TYPE,
    BH__LABEL_REASON,
    BH__LABEL_OUTCOME,
    BH__LABEL_BREAKER,
    BH__LABELS
} bh__label;

/* A row of the table of metrics. */
typedef struct bh__metric {
    const char *name, *otel_name, *unit, *help;
    bh_instrument instrument;
    const int64_t *buckets; /* upper bounds in millionths, ascending */
    size_t bucket_count;
    const char *labels[BH_METRICS_MOST_LABELS]; /* "": no label */
} bh__metric;

/* A row of the table of labels. */
typedef struct bh__label_row {
    const char *name, *otel_name;
    size_t most; /* values; a further value counts as BH_METRICS_OTHER */
} bh__label_row;

extern const bh__metric bh__metric_table[BH_METRIC_LAST];
extern const bh__label_row bh__label_table[BH__LABELS];

static inline int bh__is_metric(int metric)
{
    return metric >= 0 && metric < BH_METRIC_LAST;
}

/* Returns the number of labels of a metric, which must exist. */
size_t bh__metric_label_count(int metric);
/* Returns the label of a metric at `index`, which is below bh__metric_label_count. */
bh__label bh__metric_label(int metric, size_t index);

/* Values of a label in a series; from BH__FIRST_NAME on, the value is an index into the label's
 * names. */
enum { BH__VALUE_EMPTY = 0, BH__VALUE_OTHER = 1, BH__FIRST_NAME = 2 };

/* The names that a label has as values. */
typedef struct bh__names {
    bh__store store;
    bh__text *items;
    size_t count;
    size_t capacity;
    int is_closed; /* an event adds no further name */
} bh__names;

/* The count of one metric with certain values of its labels. */
typedef struct bh__series {
    int metric;
    size_t values[BH_METRICS_MOST_LABELS];
    int64_t count; /* of observations; the value of a counter or a gauge */
    int64_t sum;
    int64_t buckets[BH_METRICS_MOST_BUCKETS + 1]; /* each alone; the last is the infinite one */
} bh__series;

typedef struct bh__sample {
    size_t series;
    int64_t value;
} bh__sample;

struct bh_metrics {
    bh__names names[BH__LABELS];
    bh__series *series;
    size_t series_count;
    size_t series_capacity;
    uint32_t *places[BH_METRIC_LAST]; /* by label values: the index of the series plus 1; 0: no series */
    bh__sample samples[BH__METRIC_SAMPLES];
    size_t sample_count;
    bh__report text;
};

/* Finds the value of a label, and adds it if the label has room. False: no memory. */
int bh__metrics_find_value(bh_metrics *self, bh__label of, bh_bytes name, size_t *out);
/* Returns the name of a series' label at `index`. */
bh_bytes bh__metrics_value_name(const bh_metrics *self, const bh__series *of, size_t index);
/* Finds the series of a metric with these values, and adds it if there is none. False: no
 * memory. */
int bh__metrics_find_series(bh_metrics *self, int metric, const size_t values[BH_METRICS_MOST_LABELS], size_t *out);
/* Returns the sum of two numbers that are not negative, at most INT64_MAX. */
static inline int64_t bh__metrics_sum(int64_t one, int64_t other)
{
    return other > INT64_MAX - one ? INT64_MAX : one + other;
}

#endif
