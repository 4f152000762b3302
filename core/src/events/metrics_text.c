/* All series in Prometheus' text format. */
#include "events/metrics_data.h"

/* Appends millionths as a decimal number. printf would use the decimal point of the locale. */
static void add_number(bh__report *out, int64_t number)
{
    char digits[8] = "000000";
    size_t size = 6;
    for (int64_t rest = number % BH__MILLION; size > 0; rest /= 10)
        digits[--size] = (char)('0' + rest % 10);
    for (size = 6; size > 0 && digits[size - 1] == '0';)
        digits[--size] = '\0';
    bh__report_add(out, "%lld%s%s", (long long)(number / BH__MILLION), size ? "." : "", digits);
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

/*
 * Appends `name_suffix{queue="orders",le="0.1"}`.
 *
 * bound: of a bucket, in millionths. -1: the infinite bucket. -2: no bucket.
 */
static void add_name_and_labels(const bh_metrics *self, bh__report *out, const bh__series *of, const char *suffix,
                                int64_t bound)
{
    const char *separator = "{";
    bh__report_add(out, "%s%s", bh__metric_table[of->metric].name, suffix);
    for (size_t i = 0; i < bh__metric_label_count(of->metric); i++, separator = ",") {
        bh__report_add(out, "%s%s=\"", separator, bh__metric_table[of->metric].labels[i]);
        add_escaped(out, bh__metrics_value_name(self, of, i));
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

static void add_series(const bh_metrics *self, bh__report *out, const bh__series *of)
{
    enum { INFINITE = -1, NO_BUCKET = -2 };
    int64_t count = 0;
    if (bh__metric_table[of->metric].instrument == BH_INSTRUMENT_HISTOGRAM) {
        for (size_t i = 0; i <= bh__metric_table[of->metric].bucket_count; i++) {
            int64_t bound =
                i < bh__metric_table[of->metric].bucket_count ? bh__metric_table[of->metric].buckets[i] : INFINITE;
            count += of->buckets[i];
            add_name_and_labels(self, out, of, "_bucket", bound);
            bh__report_add(out, "%lld\n", (long long)count);
        }
        add_name_and_labels(self, out, of, "_sum", NO_BUCKET);
        add_number(out, of->sum);
        bh__report_add(out, "\n");
    }
    add_name_and_labels(self, out, of,
                        bh__metric_table[of->metric].instrument == BH_INSTRUMENT_HISTOGRAM ? "_count" : "", NO_BUCKET);
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
                bh__report_add(out, "# HELP %s %s\n# TYPE %s %s\n", bh__metric_table[metric].name,
                               bh__metric_table[metric].help, bh__metric_table[metric].name,
                               types[bh__metric_table[metric].instrument]);
            add_series(self, out, &self->series[i]);
        }
    }
    return bh__report_text(out);
}
