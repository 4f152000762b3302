/* Preview: the delays and rungs that a policy has on a topology. */
#include "policy/internal.h"
#include "topology/internal.h"

#include <math.h>

#define BELOW_2_53 ((INT64_C(1) << 53) - 1)
#define MOST_SUMMED 1000000

/*
 * The rungs of a policy and its delays after one failure, in ms. The delays are uniform from lowest
 * to highest; a delay above `cap` is lowered to `cap`.
 */
typedef struct view {
    const bh__rungs *rungs;
    size_t count; /* of the rungs up to the policy's highest delay */
    double lowest;
    double highest;
    double cap;
} view;

static int has_preview(const bh_topology *self, const bh_policy *policy)
{
    return self && policy && bh__topology_is_built(self) && bh__topology_serves(self, policy);
}

static view view_of(const bh_topology *self, const bh_policy *policy, int64_t attempt)
{
    const bh__rungs *rungs = bh__topology_rungs(self);
    int64_t max_ms = bh__policy_max_ms(policy);
    view seen = {
        .rungs = rungs,
        .count = bh__rungs_up_to(rungs, max_ms),
        .lowest = (double)bh__policy_lowest_ms(policy, attempt),
        .highest = (double)bh__policy_highest_ms(policy, attempt),
        .cap = (double)max_ms,
    };
    if (bh__policy_jitter(policy) == BH_JITTER_DECORRELATED)
        seen.highest = 3 * (attempt > 1 ? (double)bh__policy_mean_ms(policy, attempt - 1) : seen.lowest);
    return seen;
}

/*
 * Returns the share of messages with this delay that the rung `at` gets, 0 to 1. The nearer rung
 * gets more. Beyond the first and the last rung, that rung gets all.
 */
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
    double share = (edge - delay) / (edge - rung);
    return share > 0 ? share : 0;
}

/*
 * Returns the mean weight of delays that are uniform from `first` to `last`. The weight is linear
 * between rungs, so the function sums the means of its linear pieces.
 */
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

/* Reads the indices of the lowest and the highest rung that the delays can take. */
static void find_ends(const bh_topology *self, const bh_policy *policy, int64_t attempt, size_t *first, size_t *last)
{
    view seen = view_of(self, policy, attempt);
    double highest = (double)bh__policy_highest_ms(policy, attempt);
    *first = 0;
    while (*first + 1 < seen.count && (double)seen.rungs->policy_ms[*first + 1] <= seen.lowest)
        (*first)++;
    *last = *first;
    while (*last + 1 < seen.count && (double)seen.rungs->policy_ms[*last] < highest)
        (*last)++;
}

static int has_rungs(const bh_topology *self)
{
    return bh__topology_strategy(self) == BH_STRATEGY_LADDER && bh__topology_rungs(self)->count > 0;
}

static int64_t mean_ms(const bh_topology *self, const bh_policy *policy, int64_t attempt)
{
    view seen = view_of(self, policy, attempt);
    double mean = 0;
    for (size_t i = 0; i < seen.count; i++)
        mean += share(&seen, i) * (double)seen.rungs->policy_ms[i];
    return (int64_t)floor(mean + 0.5);
}

static int64_t total_ms(const bh_topology *self, const bh_policy *policy, int64_t attempt)
{
    int64_t total = 0;
    int64_t last_mean = bh__policy_mean_ms(policy, BH_POLICY_MOST_ATTEMPTS);
    int is_steps = bh__policy_kind(policy) == BH_KIND_STEPS;
    for (int64_t i = 1; i <= attempt; i++) {
        int64_t mean = mean_ms(self, policy, i);
        /* The means of all kinds but steps never fall, so the last mean stays. */
        int is_last = i == MOST_SUMMED ||
                      (is_steps ? i > BH_POLICY_MOST_STEPS : i > 1 && bh__policy_mean_ms(policy, i - 1) == last_mean);
        int64_t times = is_last ? attempt - i + 1 : 1;
        if (mean > 0 && times > (BELOW_2_53 - total) / mean)
            return BELOW_2_53;
        total += mean * times;
        if (is_last)
            break;
    }
    return total;
}

int64_t bh__topology_mean_ms(const bh_topology *self, const bh_policy *policy, int64_t attempt)
{
    if (!has_preview(self, policy))
        return 0;
    return has_rungs(self) ? mean_ms(self, policy, attempt) : bh__policy_mean_ms(policy, attempt);
}

void bh_topology_preview(const bh_topology *self, const bh_policy *policy, int64_t attempt, bh_preview *out)
{
    *out = (bh_preview){0};
    if (!has_preview(self, policy))
        return;
    if (!has_rungs(self)) {
        bh_policy_preview(policy, attempt, out);
        return;
    }
    size_t first;
    size_t last;
    find_ends(self, policy, attempt, &first, &last);
    const bh__rungs *rungs = bh__topology_rungs(self);
    *out = (bh_preview){
        .lowest_ms = rungs->policy_ms[first],
        .mean_ms = mean_ms(self, policy, attempt),
        .highest_ms = rungs->policy_ms[last],
        .total_ms = total_ms(self, policy, attempt),
        .spread = last - first + 1,
    };
}

double bh_topology_share(const bh_topology *self, const bh_policy *policy, int64_t attempt, size_t index)
{
    if (!has_preview(self, policy) || !has_rungs(self))
        return 0;
    view seen = view_of(self, policy, attempt);
    return index < seen.count ? share(&seen, index) : 0;
}
