/* Policy: settings, limits, delays and their preview. */
#include "policy/internal.h"

#include "base/memory.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define MOST_SUMMED 1000000
#define BELOW_2_53 ((INT64_C(1) << 53) - 1)

struct bh_policy {
    bh_policy_settings set;
    int64_t *steps_ms; /* owns set.steps_ms */
    char error[256];
};

/* --------------------------------------------------------------------------------- new and free */

void bh_policy_defaults(bh_policy_settings *out)
{
    if (!out)
        return;
    *out = (bh_policy_settings){
        .kind = BH_KIND_EXPONENTIAL,
        .initial_ms = 1000,
        .factor = 2.0,
        .max_ms = BH_POLICY_OF_KIND,
        .jitter = BH_JITTER_SPREAD,
        .ratio = 0.2,
        .max_attempts = BH_POLICY_OF_KIND,
        .max_retry_after_ms = 86400000,
        .max_crashes = 5,
        .max_deferrals = 100,
    };
}

bh_status bh_policy_new(bh_policy **out)
{
    if (!out)
        return BH_ERR_ARGUMENT;
    *out = calloc(1, sizeof **out);
    if (!*out)
        return BH_ERR_NO_MEMORY;
    bh_policy_defaults(&(*out)->set);
    return BH_OK;
}

void bh_policy_free(bh_policy *self)
{
    if (!self)
        return;
    free(self->steps_ms);
    free(self);
}

bh_status bh__policy_copy(bh_policy **out, const bh_policy *from)
{
    *out = NULL;
    bh_policy *copy = bh__duplicate(from, sizeof *from);
    if (!copy)
        return BH_ERR_NO_MEMORY;
    copy->steps_ms = bh__duplicate(from->steps_ms, from->set.step_count * sizeof *from->steps_ms);
    copy->set.steps_ms = copy->steps_ms;
    if (!copy->steps_ms) {
        bh_policy_free(copy);
        return BH_ERR_NO_MEMORY;
    }
    *out = copy;
    return BH_OK;
}

int bh__policy_same(const bh_policy *self, const bh_policy *other)
{
    const bh_policy_settings *a = &self->set, *b = &other->set;
    if (a == b)
        return 1;
    return a->kind == b->kind && a->jitter == b->jitter && a->ratio == b->ratio && a->factor == b->factor &&
           a->initial_ms == b->initial_ms && a->max_ms == b->max_ms && a->max_attempts == b->max_attempts &&
           a->max_age_ms == b->max_age_ms && a->max_retry_after_ms == b->max_retry_after_ms &&
           a->step_count == b->step_count &&
           (a->step_count == 0 || memcmp(a->steps_ms, b->steps_ms, a->step_count * sizeof *a->steps_ms) == 0);
}

/* ------------------------------------------------------------------------------------ settings */

static bh_status refuse(bh_policy *self, const char *sentence)
{
    snprintf(self->error, sizeof self->error, "%s", sentence);
    return BH_ERR_POLICY;
}

static bh_status check_number(bh_policy *self, const char *name, int64_t value, int64_t least, int64_t most)
{
    if (value >= least && value <= most)
        return BH_OK;
    snprintf(self->error, sizeof self->error, "%s is %lld: give a whole number from %lld to %lld", name,
             (long long)value, (long long)least, (long long)most);
    return BH_ERR_POLICY;
}

static bh_status check_kind(bh_policy *self, const bh_policy_settings *set)
{
    static const char *const kinds[] = {"exponential", "linear", "fixed", "steps"};
    if ((int)set->kind < BH_KIND_EXPONENTIAL || (int)set->kind > BH_KIND_STEPS)
        return refuse(self, "kind is none of exponential, linear, fixed, steps: give one of these");
    const char *unused = NULL;
    if (set->gives_initial && set->kind == BH_KIND_STEPS)
        unused = "initial";
    else if (set->gives_factor && set->kind != BH_KIND_EXPONENTIAL)
        unused = "factor";
    if (!unused)
        return BH_OK;
    snprintf(self->error, sizeof self->error,
             "%s is given, and the kind %s has no use for it: leave it out, or take another kind", unused,
             kinds[set->kind]);
    return BH_ERR_POLICY;
}

static bh_status check_steps(bh_policy *self, const bh_policy_settings *set)
{
    bh_status status = BH_OK;
    if (set->step_count > 0 && !set->steps_ms)
        return BH_ERR_ARGUMENT;
    for (size_t i = 0; status == BH_OK && i < set->step_count; i++) {
        if (i == BH_POLICY_MOST_STEPS)
            return refuse(self, "there are more than 1000 steps: give fewer, or a kind that is a formula");
        status = check_number(self, "step_ms", set->steps_ms[i], 1, BH_POLICY_LONGEST_MS);
    }
    return status;
}

static bh_status check_jitter(bh_policy *self, const bh_policy_settings *set)
{
    if ((int)set->jitter < BH_JITTER_NONE || (int)set->jitter > BH_JITTER_DECORRELATED)
        return refuse(self, "jitter is none of none, spread, equal, full, decorrelated: give one of these");
    if (set->jitter == BH_JITTER_SPREAD && !(set->ratio >= 0.0 && set->ratio <= 1.0))
        return refuse(self, "jitter: the ratio of spread is not from 0 to 1: 0.2 spreads by 20 % to either side");
    return BH_OK;
}

static bh_status check_limits(bh_policy *self, const bh_policy_settings *set)
{
    bh_status status = BH_OK;
    if (set->max_attempts != BH_POLICY_OF_KIND)
        status = check_number(self, "max_attempts", set->max_attempts, 0, BH_POLICY_MOST_ATTEMPTS);
    if (status == BH_OK)
        status = check_number(self, "max_age_ms", set->max_age_ms, 0, BH_POLICY_LONGEST_MS);
    if (status == BH_OK)
        status = check_number(self, "max_retry_after_ms", set->max_retry_after_ms, 0, BH_POLICY_LONGEST_MS);
    if (status == BH_OK)
        status = check_number(self, "max_crashes", set->max_crashes, 0, BH_POLICY_MOST_ATTEMPTS);
    if (status == BH_OK)
        status = check_number(self, "max_deferrals", set->max_deferrals, 0, BH_POLICY_MOST_ATTEMPTS);
    return status;
}

/* Checks the range of each field. The order decides which of several errors is reported. */
static bh_status check_fields(bh_policy *self, const bh_policy_settings *set)
{
    bh_status status = check_kind(self, set);
    if (status == BH_OK)
        status = check_number(self, "initial_ms", set->initial_ms, 1, BH_POLICY_LONGEST_MS);
    if (status == BH_OK && (!(set->factor >= 1.0) || !isfinite(set->factor)))
        status = refuse(self, "factor is below 1, infinite or not a number: give a finite number, 1 or more");
    if (status == BH_OK && set->max_ms != BH_POLICY_OF_KIND)
        status = check_number(self, "max_ms", set->max_ms, 1, BH_POLICY_LONGEST_MS);
    if (status == BH_OK)
        status = check_steps(self, set);
    if (status == BH_OK)
        status = check_jitter(self, set);
    return status == BH_OK ? check_limits(self, set) : status;
}

bh_status bh_policy_set(bh_policy *self, const bh_policy_settings *settings)
{
    if (!self || !settings)
        return BH_ERR_ARGUMENT;
    bh_status status = check_fields(self, settings);
    if (status != BH_OK)
        return status;
    int64_t *steps_ms = bh__duplicate(settings->steps_ms, settings->step_count * sizeof *steps_ms);
    if (!steps_ms)
        return BH_ERR_NO_MEMORY;
    free(self->steps_ms);
    self->set = *settings;
    self->set.steps_ms = self->steps_ms = steps_ms;
    self->set.gives_initial = self->set.gives_factor = 0;
    if (self->set.jitter == BH_JITTER_SPREAD && self->set.ratio == 0.0)
        self->set.jitter = BH_JITTER_NONE;
    return BH_OK;
}

void bh_policy_read(const bh_policy *self, bh_policy_settings *out)
{
    if (self)
        *out = self->set;
    else
        bh_policy_defaults(out);
}

bh_status bh_policy_check(bh_policy *self)
{
    if (!self)
        return BH_ERR_ARGUMENT;
    if (self->set.kind != BH_KIND_STEPS && self->set.step_count > 0)
        return refuse(self, "steps are given, but kind is another: set kind to steps, or give no steps");
    if (self->set.kind == BH_KIND_STEPS && self->set.step_count == 0)
        return refuse(self, "kind is steps, but no step is given: add the delays in order");
    if (self->set.kind == BH_KIND_STEPS && self->set.jitter == BH_JITTER_DECORRELATED)
        return refuse(self,
                      "jitter decorrelated grows from initial_ms and would ignore the steps: take another jitter");
    int64_t max_ms = bh__policy_max_ms(self);
    for (size_t i = 0; i < self->set.step_count; i++) {
        if (self->steps_ms[i] > max_ms) {
            snprintf(self->error, sizeof self->error,
                     "step %zu is %lld ms, above max_ms %lld: raise max_ms or lower the step", i + 1,
                     (long long)self->steps_ms[i], (long long)max_ms);
            return BH_ERR_POLICY;
        }
    }
    if (self->set.kind != BH_KIND_STEPS && self->set.initial_ms > max_ms) {
        snprintf(self->error, sizeof self->error,
                 "initial_ms is %lld, above max_ms %lld: raise max_ms or lower initial_ms",
                 (long long)self->set.initial_ms, (long long)max_ms);
        return BH_ERR_POLICY;
    }
    self->error[0] = '\0';
    return BH_OK;
}

bh_bytes bh_policy_error(const bh_policy *self)
{
    return bh_str(self ? self->error : "");
}

bh_kind bh__policy_kind(const bh_policy *self)
{
    return self ? self->set.kind : BH_KIND_EXPONENTIAL;
}

bh_jitter bh__policy_jitter(const bh_policy *self)
{
    return self ? self->set.jitter : BH_JITTER_NONE;
}

int64_t bh__policy_max_attempts(const bh_policy *self)
{
    if (!self)
        return 0;
    if (self->set.max_attempts != BH_POLICY_OF_KIND)
        return self->set.max_attempts;
    return self->set.kind == BH_KIND_STEPS ? (int64_t)self->set.step_count + 1 : 10;
}

int bh__policy_is_last(const bh_policy *self, int64_t attempt)
{
    int64_t most = bh__policy_max_attempts(self);
    return most > 0 && attempt >= most;
}

int64_t bh__policy_max_ms(const bh_policy *self)
{
    if (!self)
        return 0;
    if (self->set.max_ms != BH_POLICY_OF_KIND)
        return self->set.max_ms;
    return self->set.kind == BH_KIND_STEPS ? BH_POLICY_LONGEST_MS : 300000;
}

int64_t bh__policy_max_age_ms(const bh_policy *self)
{
    return self ? self->set.max_age_ms : 0;
}

int64_t bh__policy_max_retry_after_ms(const bh_policy *self)
{
    return self ? self->set.max_retry_after_ms : 0;
}

int64_t bh__policy_max_crashes(const bh_policy *self)
{
    return self ? self->set.max_crashes : 0;
}

int64_t bh__policy_max_deferrals(const bh_policy *self)
{
    return self ? self->set.max_deferrals : 0;
}

void bh_policy_limits(const bh_policy *self, bh_limits *out)
{
    *out = (bh_limits){
        .max_attempts = bh__policy_max_attempts(self),
        .max_ms = bh__policy_max_ms(self),
        .max_age_ms = bh__policy_max_age_ms(self),
        .max_retry_after_ms = bh__policy_max_retry_after_ms(self),
        .max_crashes = bh__policy_max_crashes(self),
        .max_deferrals = bh__policy_max_deferrals(self),
    };
}

/* Rounds half up to whole ms, from 1 to the highest delay. Accepts the infinity of an overflow. */
static int64_t whole_ms(const bh_policy *self, double ms)
{
    int64_t max_ms = bh__policy_max_ms(self);
    if (ms >= (double)max_ms)
        return max_ms;
    return ms >= 1.5 ? (int64_t)floor(ms + 0.5) : 1;
}

/* Returns the delay after the attempt-th failure, before jitter. */
static double base_ms(const bh_policy *self, int64_t attempt)
{
    int64_t last = attempt < 1 ? 1 : attempt > BH_POLICY_MOST_ATTEMPTS ? BH_POLICY_MOST_ATTEMPTS : attempt;
    double ms = (double)self->set.initial_ms;
    switch (self->set.kind) {
    case BH_KIND_EXPONENTIAL:
        ms *= pow(self->set.factor, (double)(last - 1));
        break;
    case BH_KIND_LINEAR:
        ms *= (double)last;
        break;
    case BH_KIND_FIXED:
        break;
    case BH_KIND_STEPS:
        if (self->set.step_count > 0)
            ms =
                (double)
                    self->steps_ms[last <= (int64_t)self->set.step_count ? (size_t)last - 1 : self->set.step_count - 1];
        break;
    }
    return (double)whole_ms(self, ms);
}

int64_t bh_policy_delay_ms(const bh_policy *self, int64_t attempt, int64_t previous_ms, double u)
{
    if (!self)
        return 1;
    double below_one = nextafter(1.0, 0.0);
    double random = u > 0.0 ? (u < below_one ? u : below_one) : 0.0;
    double base = base_ms(self, attempt);
    double initial = (double)self->set.initial_ms;
    switch (self->set.jitter) {
    case BH_JITTER_NONE:
        break;
    case BH_JITTER_SPREAD:
        base = fmin(base, (double)bh__policy_max_ms(self) / (1.0 + self->set.ratio));
        base *= 1.0 - self->set.ratio + 2.0 * self->set.ratio * random;
        break;
    case BH_JITTER_EQUAL:
        base = base / 2.0 + random * base / 2.0;
        break;
    case BH_JITTER_FULL:
        base *= random;
        break;
    case BH_JITTER_DECORRELATED:
        base = initial + random * (3.0 * fmax((double)previous_ms, initial) - initial);
        break;
    }
    return whole_ms(self, base);
}

/*
 * Reads the highest and the mean delay of decorrelated jitter. The mean is the mean of min(max, U),
 * with U uniform from the initial delay to three times the previous mean.
 */
static void decorrelated_ms(const bh_policy *self, int64_t attempt, double *highest, double *mean)
{
    double initial = (double)self->set.initial_ms;
    double max = (double)bh__policy_max_ms(self);
    *highest = initial;
    *mean = initial;
    for (int64_t i = 0; i < attempt && i < 1000; i++) {
        double before = *mean;
        double top = 3.0 * *mean;
        *highest = fmin(max, 3.0 * *highest);
        *mean = top <= max ? (initial + top) / 2.0
                           : ((max * max - initial * initial) / 2.0 + max * (top - max)) / (top - initial);
        if (*highest >= max && *mean == before)
            return;
    }
}

int64_t bh__policy_lowest_ms(const bh_policy *self, int64_t attempt)
{
    return bh_policy_delay_ms(self, attempt, 0, 0.0);
}

int64_t bh__policy_mean_ms(const bh_policy *self, int64_t attempt)
{
    if (!self || self->set.jitter != BH_JITTER_DECORRELATED)
        return bh_policy_delay_ms(self, attempt, 0, 0.5);
    double highest;
    double mean;
    decorrelated_ms(self, attempt, &highest, &mean);
    return whole_ms(self, mean);
}

int64_t bh__policy_highest_ms(const bh_policy *self, int64_t attempt)
{
    if (!self || self->set.jitter != BH_JITTER_DECORRELATED)
        return bh_policy_delay_ms(self, attempt, 0, 1.0);
    double highest;
    double mean;
    decorrelated_ms(self, attempt, &highest, &mean);
    return whole_ms(self, highest);
}

static int64_t total_ms(const bh_policy *self, int64_t attempt)
{
    int64_t total = 0;
    int64_t last_mean = bh__policy_mean_ms(self, BH_POLICY_MOST_ATTEMPTS);
    for (int64_t i = 1; i <= attempt; i++) {
        int64_t mean = bh__policy_mean_ms(self, i);
        /* The means of all kinds but steps never fall: from the last mean on, all are equal. */
        int is_settled = i == MOST_SUMMED ||
                         (mean == last_mean && (self->set.kind != BH_KIND_STEPS || i > (int64_t)self->set.step_count));
        int64_t times = is_settled ? attempt - i + 1 : 1;
        if (times > (BELOW_2_53 - total) / mean)
            return BELOW_2_53;
        total += mean * times;
        if (is_settled)
            break;
    }
    return total;
}

void bh_policy_preview(const bh_policy *self, int64_t attempt, bh_preview *out)
{
    *out = (bh_preview){0};
    if (!self)
        return;
    out->lowest_ms = bh__policy_lowest_ms(self, attempt);
    out->mean_ms = bh__policy_mean_ms(self, attempt);
    out->highest_ms = bh__policy_highest_ms(self, attempt);
    out->total_ms = total_ms(self, attempt);
}
