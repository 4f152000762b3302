#include "policy_internal.h"
#include "topology_internal.h"

#include <math.h>

#define BELOW_2_53 ((INT64_C(1) << 53) - 1)
#define MOST_SUMMED 1000000

/* The rungs that a policy's delays can take, and the delays after one failure: uniform from lowest to highest, and what
 * is above cap is cap. All in ms. */
typedef struct view {
    const bh__rungs *rungs;
    size_t count; /* none above the policy's max */
    double lowest;
    double highest;
    double cap;
} view;

static int can_tell(const bh_topology *self, const bh_policy *policy)
{
    return self && policy && bh__topology_is_built(self) && bh__topology_serves(self, policy);
}

static view view_of(const bh_topology *self, const bh_policy *policy, int64_t attempt)
{
    const bh__rungs *rungs = bh__topology_rungs(self);
    int64_t max_ms = bh_policy_max_ms(policy);
    view seen = {
        .rungs = rungs,
        .count = bh__rungs_up_to(rungs, max_ms),
        .lowest = (double)bh_policy_lowest_ms(policy, attempt),
        .highest = (double)bh_policy_highest_ms(policy, attempt),
        .cap = (double)max_ms,
    };
    if (bh_policy_jitter(policy) == BH_JITTER_DECORRELATED)
        seen.highest = 3 * (attempt > 1 ? (double)bh_policy_mean_ms(policy, attempt - 1) : seen.lowest);
    return seen;
}

/* What goes to the rung `at` of a delay, 0 to 1: the nearer the delay, the more; all of it beyond the last rung. */
static double weight(const view *self, size_t at, double delay)
{
    double rung = (double)self->rungs->policy_ms[at];
    double edge = rung;
    if (delay < rung && at > 0)
        edge = (double)self->rungs->policy_ms[at - 1];
    else if (delay > rung && at + 1 < self->count)
        edge = (double)self->rungs->policy_ms[at + 1];
    if (edge == rung)
        return 1;
    double left = (edge - delay) / (edge - rung);
    return left > 0 ? left : 0;
}

/* The same of delays that are uniform from `first` to `last`. The weight is a polygon: its mean is summed between its
 * corners, where it is straight. */
static double mean_weight(const view *self, size_t at, double first, double last)
{
    if (last <= first)
        return weight(self, at, first);
    double sum = 0;
    double from = first;
    size_t corner = at > 0 ? at - 1 : 0;
    for (; from < last; corner++) {
        double to = last;
        if (corner <= at + 1 && corner < self->count) {
            to = fmin(last, (double)self->rungs->policy_ms[corner]);
            if (to <= from)
                continue;
        }
        sum += (to - from) * (weight(self, at, from) + weight(self, at, to)) / 2;
        from = to;
    }
    return sum / (last - first);
}

static double share(const view *self, size_t at)
{
    if (self->highest <= self->cap)
        return mean_weight(self, at, self->lowest, self->highest);
    double above = (self->highest - self->cap) / (self->highest - self->lowest);
    return (1 - above) * mean_weight(self, at, self->lowest, self->cap) + above * weight(self, at, self->cap);
}

/* Indices of the lowest and highest rung that the delays can take. */
static void find_ends(const bh_topology *self, const bh_policy *policy, int64_t attempt, size_t *first, size_t *last)
{
    view seen = view_of(self, policy, attempt);
    double highest = (double)bh_policy_highest_ms(policy, attempt);
    *first = 0;
    while (*first + 1 < seen.count && (double)seen.rungs->policy_ms[*first + 1] <= seen.lowest)
        (*first)++;
    *last = *first;
    while (*last + 1 < seen.count && (double)seen.rungs->policy_ms[*last] < highest)
        (*last)++;
}

static int has_rungs(const bh_topology *self)
{
    return bh_topology_strategy(self) == BH_STRATEGY_LADDER && bh_topology_rung_count(self) > 0;
}

int64_t bh_topology_lowest_ms(const bh_topology *self, const bh_policy *policy, int64_t attempt)
{
    size_t first;
    size_t last;
    if (!can_tell(self, policy))
        return 0;
    if (!has_rungs(self))
        return bh_policy_lowest_ms(policy, attempt);
    find_ends(self, policy, attempt, &first, &last);
    return bh_topology_rung_ms(self, first);
}

int64_t bh_topology_highest_ms(const bh_topology *self, const bh_policy *policy, int64_t attempt)
{
    size_t first;
    size_t last;
    if (!can_tell(self, policy))
        return 0;
    if (!has_rungs(self))
        return bh_policy_highest_ms(policy, attempt);
    find_ends(self, policy, attempt, &first, &last);
    return bh_topology_rung_ms(self, last);
}

static int64_t mean_ms(const bh_topology *self, const bh_policy *policy, int64_t attempt)
{
    if (!has_rungs(self))
        return bh_policy_mean_ms(policy, attempt);
    view seen = view_of(self, policy, attempt);
    double mean = 0;
    for (size_t i = 0; i < seen.count; i++)
        mean += share(&seen, i) * (double)seen.rungs->policy_ms[i];
    return (int64_t)floor(mean + 0.5);
}

int64_t bh_topology_mean_ms(const bh_topology *self, const bh_policy *policy, int64_t attempt)
{
    return can_tell(self, policy) ? mean_ms(self, policy, attempt) : 0;
}

int64_t bh_topology_total_ms(const bh_topology *self, const bh_policy *policy, int64_t attempt)
{
    if (!can_tell(self, policy))
        return 0;
    int64_t total = 0;
    int64_t settled = bh_policy_mean_ms(policy, BH_POLICY_MOST_ATTEMPTS);
    int is_steps = bh_policy_kind(policy) == BH_KIND_STEPS;
    for (int64_t i = 1; i <= attempt; i++) {
        int64_t mean = mean_ms(self, policy, i);
        /* All kinds but steps never fall, so what has reached its end stays there. */
        int is_last = i == MOST_SUMMED ||
                      (is_steps ? i > BH_POLICY_MOST_STEPS : i > 1 && bh_policy_mean_ms(policy, i - 1) == settled);
        int64_t times = is_last ? attempt - i + 1 : 1;
        if (mean > 0 && times > (BELOW_2_53 - total) / mean)
            return BELOW_2_53;
        total += mean * times;
        if (is_last)
            break;
    }
    return total;
}

size_t bh_topology_spread(const bh_topology *self, const bh_policy *policy, int64_t attempt)
{
    size_t first;
    size_t last;
    if (!can_tell(self, policy) || !has_rungs(self))
        return 0;
    find_ends(self, policy, attempt, &first, &last);
    return last - first + 1;
}

double bh_topology_share(const bh_topology *self, const bh_policy *policy, int64_t attempt, size_t index)
{
    if (!can_tell(self, policy) || !has_rungs(self))
        return 0;
    view seen = view_of(self, policy, attempt);
    return index < seen.count ? share(&seen, index) : 0;
}
