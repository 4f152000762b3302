/* The table of metrics and their labels. */
#include "events/metrics_data.h"

/* Upper bounds, in millionths. */
static const int64_t none_buckets[] = {0};
static const int64_t fast_buckets[] = {1000,    5000,    10000,   25000,    50000,    100000,   250000,   500000,
                                       1000000, 2500000, 5000000, 10000000, 30000000, 60000000, 300000000};
static const int64_t slow_buckets[] = {100000,   500000,    1000000,   2500000,    5000000,     10000000,   30000000,
                                       60000000, 300000000, 900000000, 3600000000, 14400000000, 86400000000};
static const int64_t counts_buckets[] = {1000000,  2000000,  3000000,  4000000,  5000000,  7000000,
                                         10000000, 15000000, 20000000, 50000000, 100000000};

enum {
    NONE_COUNT = 0,
    FAST_COUNT = sizeof fast_buckets / sizeof fast_buckets[0],
    SLOW_COUNT = sizeof slow_buckets / sizeof slow_buckets[0],
    COUNTS_COUNT = sizeof counts_buckets / sizeof counts_buckets[0]
};

const bh__metric bh__metric_table[BH_METRIC_LAST] = {
#define METRIC(id, prometheus, opentelemetry, unit_, instrument_, buckets_, label, second, help_)                      \
    [id] = {.name = (prometheus),                                                                                      \
            .otel_name = (opentelemetry),                                                                              \
            .unit = (unit_),                                                                                           \
            .help = (help_),                                                                                           \
            .instrument = BH_INSTRUMENT_##instrument_,                                                                 \
            .buckets = buckets_##_BUCKETS,                                                                             \
            .bucket_count = buckets_##_COUNT,                                                                          \
            .labels = {label, second}},
#define NONE_BUCKETS none_buckets
#define FAST_BUCKETS fast_buckets
#define SLOW_BUCKETS slow_buckets
#define COUNTS_BUCKETS counts_buckets
    BH_METRIC_LIST(METRIC)
#undef METRIC
};

const bh__label_row bh__label_table[BH__LABELS] = {
    [BH__LABEL_QUEUE] = {"queue", "messaging.destination.name", BH_METRICS_MOST_QUEUES},
    [BH__LABEL_ERROR_TYPE] = {"error_type", "error.type", BH_METRICS_MOST_ERROR_TYPES},
    [BH__LABEL_REASON] = {"reason", "backhop.reason", 16},
    [BH__LABEL_OUTCOME] = {"outcome", "backhop.outcome", 3},
    [BH__LABEL_BREAKER] = {"breaker", "backhop.breaker", BH_METRICS_MOST_ERROR_TYPES},
};

size_t bh__metric_label_count(int metric)
{
    size_t count = 0;
    while (count < BH_METRICS_MOST_LABELS && bh__metric_table[metric].labels[count][0])
        count++;
    return count;
}

bh__label bh__metric_label(int metric, size_t index)
{
    bh__label found = BH__LABEL_QUEUE;
    while (found < BH__LABELS - 1 &&
           !bh__same(bh_str(bh__label_table[found].name), bh_str(bh__metric_table[metric].labels[index])))
        found++;
    return found;
}

bh_status bh_metric_describe(int metric, bh_metric_info *out)
{
    if (!out)
        return BH_ERR_ARGUMENT;
    memset(out, 0, sizeof *out);
    if (!bh__is_metric(metric))
        return BH_ERR_ARGUMENT;
    const bh__metric *of = &bh__metric_table[metric];
    out->name = bh_str(of->name);
    out->otel_name = bh_str(of->otel_name);
    out->unit = bh_str(of->unit);
    out->help = bh_str(of->help);
    out->instrument = of->instrument;
    out->label_count = bh__metric_label_count(metric);
    for (size_t i = 0; i < out->label_count; i++) {
        out->labels[i] = bh_str(of->labels[i]);
        out->otel_labels[i] = bh_str(bh__label_table[bh__metric_label(metric, i)].otel_name);
    }
    out->bucket_count = of->bucket_count;
    for (size_t i = 0; i < of->bucket_count; i++)
        out->buckets[i] = (double)of->buckets[i] / BH__MILLION;
    return BH_OK;
}
