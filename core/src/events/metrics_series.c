/* Metrics objects: label values, series, and sums of two objects. */
#include "events/metrics_data.h"

#include <stdlib.h>

enum {
    MOST_NAME_BYTES = 255,
    WIDTH = BH__FIRST_NAME + BH_METRICS_MOST_ERROR_TYPES /* values of a second label */
};

/* --------------------------------------------------------------------------------- new and free */

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
    for (int i = 0; i < BH__LABELS; i++) {
        bh__store_free(&self->names[i].store);
        free(self->names[i].items);
    }
    for (int i = 0; i < BH_METRIC_LAST; i++)
        free(self->places[i]);
    free(self->series);
    bh__report_free(&self->text);
    free(self);
}

/* --------------------------------------------------------------------------------------- labels */

static size_t find_name(const bh__names *self, bh_bytes name)
{
    size_t i = 0;
    while (i < self->count && !bh__same(bh__store_get(&self->store, self->items[i]), name))
        i++;
    return i;
}

static int add_name(bh__names *self, bh_bytes name)
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
    bh__names *known = self ? &self->names[BH__LABEL_ERROR_TYPE] : NULL;
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

int bh__metrics_find_value(bh_metrics *self, bh__label of, bh_bytes name, size_t *out)
{
    bh__names *known = &self->names[of];
    *out = BH__VALUE_EMPTY;
    if (name.size == 0)
        return 1;
    *out = BH__VALUE_OTHER;
    if (bh__same(name, bh_str(BH_METRICS_OTHER)))
        return 1;
    size_t at = find_name(known, name);
    if (at == known->count && (known->is_closed || at >= bh__label_table[of].most || !is_usable(name)))
        return 1;
    *out = BH__FIRST_NAME + at;
    return at < known->count || add_name(known, name);
}

bh_bytes bh__metrics_value_name(const bh_metrics *self, const bh__series *of, size_t index)
{
    size_t value = of->values[index];
    const bh__names *known = &self->names[bh__metric_label(of->metric, index)];
    return value == BH__VALUE_EMPTY   ? bh_str("")
           : value == BH__VALUE_OTHER ? bh_str(BH_METRICS_OTHER)
                                      : bh__store_get(&known->store, known->items[value - BH__FIRST_NAME]);
}

/* --------------------------------------------------------------------------------------- series */

/* Returns how many series a metric can have: its labels are bounded. */
static size_t most_series(int metric)
{
    size_t count = bh__metric_label_count(metric);
    return count == 0 ? 1 : (BH__FIRST_NAME + BH_METRICS_MOST_QUEUES) * (count == 1 ? 1 : WIDTH);
}

int bh__metrics_find_series(bh_metrics *self, int metric, const size_t values[BH_METRICS_MOST_LABELS], size_t *out)
{
    size_t place = bh__metric_label_count(metric) < BH_METRICS_MOST_LABELS ? values[0] : values[0] * WIDTH + values[1];
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
        self->series[self->series_count] = (bh__series){.metric = metric, .values = {values[0], values[1]}};
        *found = (uint32_t)++self->series_count;
    }
    *out = *found - 1;
    return 1;
}

bh_status bh_metrics_set(bh_metrics *self, bh_metric metric, int64_t value)
{
    const size_t values[BH_METRICS_MOST_LABELS] = {BH__VALUE_EMPTY, BH__VALUE_EMPTY};
    size_t at;
    if (!self || !bh__is_metric((int)metric) || bh__metric_table[metric].instrument != BH_INSTRUMENT_GAUGE ||
        bh__metric_label_count((int)metric) > 0)
        return BH_ERR_ARGUMENT;
    if (!bh__metrics_find_series(self, (int)metric, values, &at))
        return BH_ERR_NO_MEMORY;
    self->series[at].count = value;
    return BH_OK;
}

/* Consumers of one queue may know different states of its breaker: the worst one counts. */
static int64_t add_counts(int metric, int64_t one, int64_t other)
{
    if (metric == BH_METRIC_BREAKER_STATE)
        return one > other ? one : other;
    return bh__metrics_sum(one, other);
}

bh_status bh_metrics_add(bh_metrics *self, const bh_metrics *others)
{
    if (!self || !others || self == others)
        return BH_ERR_ARGUMENT;
    self->sample_count = 0;
    for (size_t i = 0; i < others->series_count; i++) {
        const bh__series *from = &others->series[i];
        size_t values[BH_METRICS_MOST_LABELS] = {BH__VALUE_EMPTY, BH__VALUE_EMPTY}, at;
        for (size_t each = 0; each < bh__metric_label_count(from->metric); each++)
            if (!bh__metrics_find_value(self, bh__metric_label(from->metric, each),
                                        bh__metrics_value_name(others, from, each), &values[each]))
                return BH_ERR_NO_MEMORY;
        if (!bh__metrics_find_series(self, from->metric, values, &at))
            return BH_ERR_NO_MEMORY;
        bh__series *to = &self->series[at];
        /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): bh__metrics_find_series made it */
        to->count = add_counts(from->metric, to->count, from->count);
        to->sum = bh__metrics_sum(to->sum, from->sum);
        for (size_t bucket = 0; bucket <= BH_METRICS_MOST_BUCKETS; bucket++)
            to->buckets[bucket] += from->buckets[bucket];
    }
    return BH_OK;
}

int bh__metrics_tell_the_same(const bh_metrics *self, const bh_metrics *other)
{
    const bh__names *own = &self->names[BH__LABEL_ERROR_TYPE], *others = &other->names[BH__LABEL_ERROR_TYPE];
    if (!own->is_closed || !others->is_closed)
        return own->is_closed == others->is_closed;
    int is_same = own->count == others->count;
    for (size_t i = 0; is_same && i < own->count; i++)
        is_same = find_name(others, bh__store_get(&own->store, own->items[i])) < others->count;
    return is_same;
}

bh_status bh__metrics_copy(bh_metrics **out, const bh_metrics *from)
{
    const bh__names *named = &from->names[BH__LABEL_ERROR_TYPE];
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
