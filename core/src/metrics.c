#include "metrics_internal.h"

#include "history_internal.h"
#include "memory.h"
#include "report.h"

#include <stdlib.h>

enum {
    MOST_BUCKETS = 15,
    MOST_LABELS = 2,
    MOST_SAMPLES = 4, /* of one event, or of a delivery and its success */
    MOST_NAME_BYTES = 255,
    MILLION = 1000000, /* of a histogram everything is counted in millionths */
    EMPTY = 0,         /* indices of values that every label has */
    OTHER = 1,
    FIRST_NAME = 2,
    WIDTH = FIRST_NAME + BH_METRICS_MOST_ERROR_TYPES /* values of a second label */
};

/* --------------------------------------------------------------------------------------------------------------- table */

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

static const struct {
    const char *name, *otel_name, *unit, *help;
    bh_instrument instrument;
    const int64_t *buckets;
    size_t bucket_count;
    const char *labels[MOST_LABELS];
} table[] = {
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

/* Labels, their values' bounds, and their names in OpenTelemetry. */
typedef enum label { QUEUE, ERROR_TYPE, REASON, OUTCOME, LABELS } label;

static const struct {
    const char *name, *otel_name;
    size_t most;
} labels[LABELS] = {
    [QUEUE] = {"queue", "messaging.destination.name", BH_METRICS_MOST_QUEUES},
    [ERROR_TYPE] = {"error_type", "error.type", BH_METRICS_MOST_ERROR_TYPES},
    [REASON] = {"reason", "backhop.reason", 16},
    [OUTCOME] = {"outcome", "backhop.outcome", 3},
};

static int is_metric(int metric)
{
    return metric >= 0 && metric < BH_METRIC_LAST;
}

bh_bytes bh_metric_name(int metric)
{
    return bh_str(is_metric(metric) ? table[metric].name : "");
}

bh_bytes bh_metric_otel_name(int metric)
{
    return bh_str(is_metric(metric) ? table[metric].otel_name : "");
}

bh_bytes bh_metric_unit(int metric)
{
    return bh_str(is_metric(metric) ? table[metric].unit : "");
}

bh_bytes bh_metric_help(int metric)
{
    return bh_str(is_metric(metric) ? table[metric].help : "");
}

bh_instrument bh_metric_instrument(int metric)
{
    return is_metric(metric) ? table[metric].instrument : BH_INSTRUMENT_COUNTER;
}

size_t bh_metric_label_count(int metric)
{
    size_t count = 0;
    while (is_metric(metric) && count < MOST_LABELS && table[metric].labels[count][0])
        count++;
    return count;
}

bh_bytes bh_metric_label(int metric, size_t index)
{
    return bh_str(index < bh_metric_label_count(metric) ? table[metric].labels[index] : "");
}

/* The metric's label at an index, which it has. */
static label label_of(int metric, size_t index)
{
    label found = QUEUE;
    while (found < LABELS - 1 && !bh__same(bh_str(labels[found].name), bh_str(table[metric].labels[index])))
        found++;
    return found;
}

bh_bytes bh_metric_otel_label(int metric, size_t index)
{
    return bh_str(index < bh_metric_label_count(metric) ? labels[label_of(metric, index)].otel_name : "");
}

size_t bh_metric_bucket_count(int metric)
{
    return is_metric(metric) ? table[metric].bucket_count : 0;
}

double bh_metric_bucket(int metric, size_t index)
{
    return index < bh_metric_bucket_count(metric) ? (double)table[metric].buckets[index] / MILLION : 0;
}

/* ------------------------------------------------------------------------------------------------------------- metrics */

/* The values of a label. */
typedef struct names {
    bh__store store;
    bh__text *items;
    size_t count;
    size_t capacity;
    int is_closed; /* none is added by what is seen */
} names;

/* What is counted for one metric with certain labels. */
typedef struct series {
    int metric;
    size_t values[MOST_LABELS]; /* of the labels: EMPTY, OTHER, or the index of a name from FIRST_NAME on */
    int64_t count;              /* of observations; a counter's and a gauge's value */
    int64_t sum;
    int64_t buckets[MOST_BUCKETS + 1]; /* each alone; the last is the infinite one */
} series;

typedef struct sample {
    size_t series;
    int64_t value;
} sample;

struct bh_metrics {
    names names[LABELS];
    series *series;
    size_t series_count;
    size_t series_capacity;
    uint32_t *places[BH_METRIC_LAST]; /* by the labels' values: the series' index, and 1; 0: none. NULL: none at all */
    sample samples[MOST_SAMPLES];
    size_t sample_count;
    bh__report text;
};

bh_status bh_metrics_new(bh_metrics **out)
{
    if (!out)
        return BH_ERR_ARGUMENT;
    *out = calloc(1, sizeof **out);
    return *out ? BH_OK : BH_ERR_NO_MEMORY;
}

void bh_metrics_free(bh_metrics *self)
{
    if (!self)
        return;
    for (int i = 0; i < LABELS; i++) {
        bh__store_free(&self->names[i].store);
        free(self->names[i].items);
    }
    for (int i = 0; i < BH_METRIC_LAST; i++)
        free(self->places[i]);
    free(self->series);
    bh__report_free(&self->text);
    free(self);
}

/* -------------------------------------------------------------------------------------------------------------- labels */

static size_t find_name(const names *self, bh_bytes name)
{
    size_t i = 0;
    while (i < self->count && !bh__same(bh__store_get(&self->store, self->items[i]), name))
        i++;
    return i;
}

static int add_name(names *self, bh_bytes name)
{
    void *items = self->items;
    if (!bh__reserve(&items, &self->capacity, sizeof *self->items, self->count + 1))
        return 0;
    self->items = items;
    if (!bh__store_add(&self->store, &self->items[self->count], name))
        return 0;
    self->count++;
    return 1;
}

static int is_usable(bh_bytes name)
{
    return name.size > 0 && name.size <= MOST_NAME_BYTES && bh__is_utf8(name);
}

bh_status bh_metrics_add_error_type(bh_metrics *self, bh_bytes error_class)
{
    names *known = self ? &self->names[ERROR_TYPE] : NULL;
    if (!known || !error_class.data || !is_usable(error_class))
        return BH_ERR_ARGUMENT;
    if (!bh__same(error_class, bh_str(BH_METRICS_OTHER)) && find_name(known, error_class) == known->count) {
        if (known->count >= BH_METRICS_MOST_ERROR_TYPES)
            return BH_ERR_ARGUMENT;
        if (!add_name(known, error_class))
            return BH_ERR_NO_MEMORY;
    }
    known->is_closed = 1;
    return BH_OK;
}

/* The index of a label's value; false: no memory. */
static int find_value(bh_metrics *self, label of, bh_bytes name, size_t *out)
{
    names *known = &self->names[of];
    *out = EMPTY;
    if (name.size == 0)
        return 1;
    *out = OTHER;
    if (bh__same(name, bh_str(BH_METRICS_OTHER)))
        return 1;
    size_t at = find_name(known, name);
    if (at == known->count && (known->is_closed || at >= labels[of].most || !is_usable(name)))
        return 1;
    *out = FIRST_NAME + at;
    return at < known->count || add_name(known, name);
}

static bh_bytes value_name(const bh_metrics *self, const series *of, size_t index)
{
    size_t value = of->values[index];
    const names *known = &self->names[label_of(of->metric, index)];
    return value == EMPTY   ? bh_str("")
           : value == OTHER ? bh_str(BH_METRICS_OTHER)
                            : bh__store_get(&known->store, known->items[value - FIRST_NAME]);
}

/* -------------------------------------------------------------------------------------------------------------- series */

/* How many series a metric can have, by the bounds of its labels. */
static size_t most_series(int metric)
{
    size_t count = bh_metric_label_count(metric);
    return count == 0 ? 1 : (FIRST_NAME + BH_METRICS_MOST_QUEUES) * (count == 1 ? 1 : WIDTH);
}

/* The series of a metric with these values, made where it is not; false: no memory. */
static int find_series(bh_metrics *self, int metric, const size_t values[MOST_LABELS], size_t *out)
{
    size_t place = bh_metric_label_count(metric) < MOST_LABELS ? values[0] : values[0] * WIDTH + values[1];
    if (!self->places[metric])
        self->places[metric] = calloc(most_series(metric), sizeof *self->places[metric]);
    if (!self->places[metric])
        return 0;
    uint32_t *found = &self->places[metric][place];
    if (!*found) {
        void *grown = self->series;
        if (!bh__reserve(&grown, &self->series_capacity, sizeof *self->series, self->series_count + 1))
            return 0;
        self->series = grown;
        self->series[self->series_count] = (series){.metric = metric, .values = {values[0], values[1]}};
        *found = (uint32_t)++self->series_count;
    }
    *out = *found - 1;
    return 1;
}

/* What is counted of an event; a number below 0 is not known. */
typedef struct facts {
    bh_event_kind kind;
    bh_bytes queue;
    bh_bytes error_class;
    bh_bytes reason;
    int64_t attempt;
    int64_t attempts;
    int64_t count;
    int64_t delay_ms;
    int64_t lateness_ms;
    int64_t recovery_ms;
    int64_t duration_us;
} facts;

/* Adds a sample of the metric, with the queue and another label's value; false: no memory. `value`: of a histogram in
 * millionths; a negative one is none. */
static int add_sample(bh_metrics *self, bh_metric metric, const facts *of, bh_bytes second, int64_t value)
{
    const bh_bytes names_of[MOST_LABELS] = {of->queue, second};
    size_t values[MOST_LABELS] = {EMPTY, EMPTY};
    if (value < 0)
        return 1;
    for (size_t i = 0; i < bh_metric_label_count(metric); i++)
        if (!find_value(self, label_of(metric, i), names_of[i], &values[i]))
            return 0;
    sample *added = &self->samples[self->sample_count];
    added->value = value < INT64_C(1) << 53 ? value : INT64_C(1) << 53;
    if (!find_series(self, metric, values, &added->series))
        return 0;
    self->sample_count++;
    return 1;
}

/* Of two numbers that are not negative: what messages' headers add up to ends at the greatest number. */
static int64_t sum_of(int64_t one, int64_t other)
{
    return other > INT64_MAX - one ? INT64_MAX : one + other;
}

static void count_value(series *self, int64_t value)
{
    size_t bucket = 0;
    if (table[self->metric].instrument == BH_INSTRUMENT_COUNTER) {
        self->count = sum_of(self->count, value);
        return;
    }
    while (bucket < table[self->metric].bucket_count && value > table[self->metric].buckets[bucket])
        bucket++;
    self->buckets[bucket]++;
    self->count++;
    self->sum = sum_of(self->sum, value);
}

/* ------------------------------------------------------------------------------------------------------------ observing */

/* A number in millionths, where one of it is so many; -1 where it is not known. */
static int64_t millionths(int64_t number, int64_t each)
{
    int64_t most = (INT64_C(1) << 53) / each;
    return number < 0 ? -1 : number < most ? number * each : most * each;
}

static int add_handled(bh_metrics *self, const facts *of, const char *outcome)
{
    return add_sample(self, BH_METRIC_PROCESS_DURATION, of, bh_str(""), of->duration_us) &&
           add_sample(self, BH_METRIC_ATTEMPTS, of, bh_str(outcome), millionths(of->attempt, MILLION));
}

/* The class of the handler's error; nobody named it: one of the others. */
static bh_bytes error_type(const facts *of)
{
    return of->error_class.size ? of->error_class : bh_str(BH_METRICS_OTHER);
}

static int add_copied(bh_metrics *self, const facts *of)
{
    return add_sample(self, BH_METRIC_COPY_DURATION, of, bh_str(""), of->duration_us);
}

/* The samples of an event; false: no memory. */
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
        return add_sample(self, BH_METRIC_PROCESS_DURATION, of, error_type(of), of->duration_us);
    case BH_EVENT_RETRIED:
        return add_sample(self, BH_METRIC_RETRIES, of, error_type(of), 1) &&
               add_sample(self, BH_METRIC_RETRY_DELAY, of, bh_str(""), millionths(of->delay_ms, 1000)) &&
               add_copied(self, of);
    case BH_EVENT_PARKED:
        return add_sample(self, BH_METRIC_PARKED, of, of->reason, 1) &&
               add_sample(self, BH_METRIC_ATTEMPTS, of, bh_str("parked"), millionths(of->attempts, MILLION)) &&
               add_copied(self, of);
    case BH_EVENT_REPLAYED:
        return of->count <= 0 || add_sample(self, BH_METRIC_REPLAYED, of, bh_str(""), of->count);
    default:
        return 1;
    }
}

/* Counts the samples that were added, or none of them. */
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
    const int is_end = kind == BH_EVENT_SUCCEEDED || kind == BH_EVENT_FAILED || kind == BH_EVENT_DROPPED;
    if (!self || !is_end || !queue.data || !history || !error_class.data)
        return BH_ERR_ARGUMENT;
    int64_t lateness_ms = -1; /* where it is not known when its handler began */
    if (duration_us >= 0)
        lateness_ms = bh_history_lateness_ms(history, redelivered, now_ms - duration_us / 1000);
    const facts delivered = {.kind = BH_EVENT_DELIVERED, .queue = queue, .lateness_ms = lateness_ms};
    const facts ended = {.kind = kind,
                         .queue = queue,
                         .error_class = error_class,
                         .attempt = bh_history_attempts(history) + 1,
                         .recovery_ms = bh__history_recovery_ms(history, now_ms),
                         .duration_us = duration_us};
    self->sample_count = 0;
    return count_samples(self, add_samples(self, &delivered) && add_samples(self, &ended));
}

bh_status bh_metrics_count_copy(bh_metrics *self, bh_event_kind kind, bh_bytes queue, int64_t attempts,
                                int64_t delay_ms, bh_bytes reason, bh_bytes error_class, int64_t duration_us)
{
    const int is_copied = kind == BH_EVENT_RETRIED || kind == BH_EVENT_PARKED;
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

bh_status bh_metrics_set(bh_metrics *self, bh_metric metric, int64_t value)
{
    const size_t values[MOST_LABELS] = {EMPTY, EMPTY};
    size_t at;
    if (!self || !is_metric((int)metric) || table[metric].instrument != BH_INSTRUMENT_GAUGE)
        return BH_ERR_ARGUMENT;
    if (!find_series(self, (int)metric, values, &at))
        return BH_ERR_NO_MEMORY;
    self->series[at].count = value;
    return BH_OK;
}

bh_status bh_metrics_add(bh_metrics *self, const bh_metrics *others)
{
    if (!self || !others || self == others)
        return BH_ERR_ARGUMENT;
    self->sample_count = 0;
    for (size_t i = 0; i < others->series_count; i++) {
        const series *from = &others->series[i];
        size_t values[MOST_LABELS] = {EMPTY, EMPTY}, at;
        for (size_t each = 0; each < bh_metric_label_count(from->metric); each++)
            if (!find_value(self, label_of(from->metric, each), value_name(others, from, each), &values[each]))
                return BH_ERR_NO_MEMORY;
        if (!find_series(self, from->metric, values, &at))
            return BH_ERR_NO_MEMORY;
        series *to = &self->series[at];
        /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): find_series has made it */
        to->count = sum_of(to->count, from->count);
        to->sum = sum_of(to->sum, from->sum);
        for (size_t bucket = 0; bucket <= MOST_BUCKETS; bucket++)
            to->buckets[bucket] += from->buckets[bucket];
    }
    return BH_OK;
}

int bh__metrics_tell_the_same(const bh_metrics *self, const bh_metrics *other)
{
    const names *own = &self->names[ERROR_TYPE], *others = &other->names[ERROR_TYPE];
    if (!own->is_closed || !others->is_closed)
        return own->is_closed == others->is_closed;
    int is_same = own->count == others->count;
    for (size_t i = 0; is_same && i < own->count; i++)
        is_same = find_name(others, bh__store_get(&own->store, own->items[i])) < others->count;
    return is_same;
}

bh_status bh__metrics_copy(bh_metrics **out, const bh_metrics *from)
{
    const names *named = &from->names[ERROR_TYPE];
    bh_status status = bh_metrics_new(out);
    for (size_t i = 0; status == BH_OK && named->is_closed && i < named->count; i++)
        status = bh_metrics_add_error_type(*out, bh__store_get(&named->store, named->items[i]));
    if (status == BH_OK)
        status = bh_metrics_add(*out, from);
    if (status != BH_OK) {
        bh_metrics_free(*out);
        *out = NULL;
    }
    return status;
}

/* ------------------------------------------------------------------------------------------------------------- samples */

size_t bh_metrics_sample_count(const bh_metrics *self)
{
    return self ? self->sample_count : 0;
}

/* NULL: there is none at the index. */
static const series *sampled(const bh_metrics *self, size_t index)
{
    return index < bh_metrics_sample_count(self) ? &self->series[self->samples[index].series] : NULL;
}

int bh_metrics_sample_metric(const bh_metrics *self, size_t index)
{
    const series *of = sampled(self, index);
    return of ? of->metric : BH_METRIC_LAST;
}

double bh_metrics_sample_value(const bh_metrics *self, size_t index)
{
    const series *of = sampled(self, index);
    if (!of)
        return 0;
    double value = (double)self->samples[index].value;
    return table[of->metric].instrument == BH_INSTRUMENT_HISTOGRAM ? value / MILLION : value;
}

bh_bytes bh_metrics_sample_label(const bh_metrics *self, size_t index, size_t which)
{
    const series *of = sampled(self, index);
    return of && which < bh_metric_label_count(of->metric) ? value_name(self, of, which) : bh_str("");
}

/* ---------------------------------------------------------------------------------------------------------------- text */

/* Millionths as a decimal number, whatever the locale. */
static void add_number(bh__report *out, int64_t number)
{
    char digits[8] = "000000";
    size_t size = 6;
    for (int64_t rest = number % MILLION; size > 0; rest /= 10)
        digits[--size] = (char)('0' + rest % 10);
    for (size = 6; size > 0 && digits[size - 1] == '0';)
        digits[--size] = '\0';
    bh__report_add(out, "%lld%s%s", (long long)(number / MILLION), size ? "." : "", digits);
}

static void add_escaped(bh__report *out, bh_bytes text)
{
    size_t begin = 0;
    for (size_t i = 0; i <= text.size; i++) {
        char each = '\0';
        if (i < text.size)
            each = text.data[i];
        if (i < text.size && each != '\\' && each != '"' && each != '\n' && each != '\0')
            continue;
        bh__report_add(out, "%.*s", (int)(i - begin), text.data + begin);
        if (i < text.size)
            bh__report_add(out, "%s", each == '\n' ? "\\n" : each == '"' ? "\\\"" : each == '\\' ? "\\\\" : "?");
        begin = i + 1;
    }
}

/* "name_suffix{queue="orders",le="0.1"}": `bound` in millionths, of a bucket; -1: the infinite one; -2: no bucket. */
static void add_name_and_labels(const bh_metrics *self, bh__report *out, const series *of, const char *suffix,
                                int64_t bound)
{
    const char *separator = "{";
    bh__report_add(out, "%s%s", table[of->metric].name, suffix);
    for (size_t i = 0; i < bh_metric_label_count(of->metric); i++, separator = ",") {
        bh__report_add(out, "%s%s=\"", separator, table[of->metric].labels[i]);
        add_escaped(out, value_name(self, of, i));
        bh__report_add(out, "\"");
    }
    if (bound >= -1) {
        bh__report_add(out, "%sle=\"", separator);
        if (bound >= 0)
            add_number(out, bound);
        bh__report_add(out, bound >= 0 ? "\"" : "+Inf\"");
        separator = ",";
    }
    bh__report_add(out, "%s ", separator[0] == ',' ? "}" : "");
}

static void add_series(const bh_metrics *self, bh__report *out, const series *of)
{
    enum { INFINITE = -1, NO_BUCKET = -2 };
    int64_t count = 0;
    if (table[of->metric].instrument == BH_INSTRUMENT_HISTOGRAM) {
        for (size_t i = 0; i <= table[of->metric].bucket_count; i++) {
            int64_t bound = i < table[of->metric].bucket_count ? table[of->metric].buckets[i] : INFINITE;
            count += of->buckets[i];
            add_name_and_labels(self, out, of, "_bucket", bound);
            bh__report_add(out, "%lld\n", (long long)count);
        }
        add_name_and_labels(self, out, of, "_sum", NO_BUCKET);
        add_number(out, of->sum);
        bh__report_add(out, "\n");
    }
    add_name_and_labels(self, out, of, table[of->metric].instrument == BH_INSTRUMENT_HISTOGRAM ? "_count" : "",
                        NO_BUCKET);
    bh__report_add(out, "%lld\n", (long long)of->count);
}

bh_bytes bh_metrics_text(bh_metrics *self)
{
    static const char *const types[] = {
        [BH_INSTRUMENT_COUNTER] = "counter", [BH_INSTRUMENT_GAUGE] = "gauge", [BH_INSTRUMENT_HISTOGRAM] = "histogram"};
    if (!self)
        return bh_str("");
    bh__report *out = &self->text;
    bh__report_clear(out);
    for (int metric = 0; metric < BH_METRIC_LAST; metric++) {
        int is_begun = 0;
        for (size_t i = 0; i < self->series_count; i++) {
            if (self->series[i].metric != metric)
                continue;
            if (!is_begun++)
                bh__report_add(out, "# HELP %s %s\n# TYPE %s %s\n", table[metric].name, table[metric].help,
                               table[metric].name, types[table[metric].instrument]);
            add_series(self, out, &self->series[i]);
        }
    }
    return bh__report_text(out);
}
