#include "topology/rungs.h"

#include "policy/internal.h"

#include <string.h>

/* ISO 3:1973, preferred numbers: the rounded values of the series, in hundredths. */
static const int r5[] = {100, 160, 250, 400, 630};
static const int r10[] = {100, 125, 160, 200, 250, 315, 400, 500, 630, 800};
static const int r20[] = {100, 112, 125, 140, 160, 180, 200, 224, 250, 280,
                          315, 355, 400, 450, 500, 560, 630, 710, 800, 900};
static const int r40[] = {100, 106, 112, 118, 125, 132, 140, 150, 160, 170, 180, 190, 200, 212,
                          224, 236, 250, 265, 280, 300, 315, 335, 355, 375, 400, 425, 450, 475,
                          500, 530, 560, 600, 630, 670, 710, 750, 800, 850, 900, 950};

/* Returns the rung of this index on the grid, in ms. Index 0 is 100 ms. */
static int64_t grid_ms(bh_series series, size_t index)
{
    const int *decade = series == BH_SERIES_R5    ? r5
                        : series == BH_SERIES_R20 ? r20
                        : series == BH_SERIES_R40 ? r40
                                                  : r10;
    int64_t ms = decade[index % (size_t)series];
    for (size_t i = index / (size_t)series; i > 0; i--)
        ms *= 10;
    return ms;
}

/* Returns the index of the highest rung up to `ms`; 0 if there is none. */
static size_t grid_below(bh_series series, int64_t ms)
{
    size_t index = 0;
    while (grid_ms(series, index + 1) <= ms)
        index++;
    return index;
}

static size_t grid_above(bh_series series, int64_t ms)
{
    size_t index = grid_below(series, ms);
    return grid_ms(series, index) < ms ? index + 1 : index;
}

/* Returns the first attempt that no retry follows, however it ends. */
static int64_t attempts_end(const bh_policy *policy)
{
    int64_t most = bh__policy_max_attempts(policy);
    int64_t end = most == 0 ? BH_POLICY_MOST_ATTEMPTS : most;
    return bh__policy_kind(policy) == BH_KIND_STEPS && end > BH_POLICY_MOST_STEPS + 2 ? BH_POLICY_MOST_STEPS + 2 : end;
}

void bh__delays(const bh_policy *policy, int64_t *lowest_ms, int64_t *highest_ms)
{
    int64_t last = attempts_end(policy) - 1;
    *lowest_ms = bh__policy_lowest_ms(policy, 1);
    *highest_ms = last < 1 ? *lowest_ms : bh__policy_highest_ms(policy, last);
    for (int64_t i = 1; bh__policy_kind(policy) == BH_KIND_STEPS && i <= last; i++) {
        int64_t lowest = bh__policy_lowest_ms(policy, i);
        int64_t highest = bh__policy_highest_ms(policy, i);
        *lowest_ms = lowest < *lowest_ms ? lowest : *lowest_ms;
        *highest_ms = highest > *highest_ms ? highest : *highest_ms;
    }
}

/* Adds a rung unless it is there. Returns 0 if there is no room. */
static int add(bh__rungs *self, int64_t ms)
{
    size_t at = self->count;
    while (at > 0 && self->policy_ms[at - 1] >= ms)
        at--;
    if (at < self->count && self->policy_ms[at] == ms)
        return 1;
    if (self->count == BH_TOPOLOGY_MOST_RUNGS)
        return 0;
    memmove(&self->policy_ms[at + 1], &self->policy_ms[at], (self->count - at) * sizeof self->policy_ms[0]);
    self->policy_ms[at] = ms;
    self->count++;
    return 1;
}

/*
 * The rungs that the delay after one attempt can need. Without jitter: its exact delay, twice.
 * Otherwise: the first and the last index on the grid.
 */
typedef struct span {
    int64_t first;
    int64_t last;
} span;

static span span_of(const bh_policy *policy, bh_series series, int64_t attempt)
{
    span needed = {bh__policy_lowest_ms(policy, attempt), bh__policy_highest_ms(policy, attempt)};
    if (bh__policy_jitter(policy) == BH_JITTER_NONE)
        return needed;
    size_t top = grid_below(series, bh__policy_max_ms(policy));
    size_t first = grid_below(series, needed.first);
    size_t above = grid_above(series, needed.last);
    needed.first = (int64_t)(first < top ? first : top);
    needed.last = (int64_t)(above < top ? above : top);
    return needed;
}

/*
 * Returns the next attempt with another span, or `end`. The delays of all kinds but steps never
 * fall, which allows a binary search: a policy can have 10^9 attempts.
 */
static int64_t next_change(const bh_policy *policy, bh_series series, int64_t attempt, int64_t end)
{
    if (bh__policy_kind(policy) == BH_KIND_STEPS)
        return attempt + 1;
    span now = span_of(policy, series, attempt);
    int64_t same = attempt;
    int64_t other = end;
    while (other - same > 1) {
        int64_t middle = same + (other - same) / 2;
        span then = span_of(policy, series, middle);
        if (then.first == now.first && then.last == now.last)
            same = middle;
        else
            other = middle;
    }
    return other;
}

void bh__rungs_clear(bh__rungs *self)
{
    self->count = 0;
    self->demand_count = 0;
}

/* Adds the rungs of the grid, up to a delay, that no policy needs. */
static void add_demand(bh__rungs *self, bh_series series, int64_t floor_ms)
{
    int64_t most_ms = self->demand_count > 0 ? self->demand_ms[self->demand_count - 1] : 0;
    floor_ms = floor_ms > most_ms ? floor_ms : most_ms;
    self->demand_count = 0;
    for (size_t i = 0; floor_ms > 0; i++) {
        int64_t ms = grid_ms(series, i);
        if (!bh__rungs_has(self, ms))
            self->demand_ms[self->demand_count++] = ms;
        if (ms >= floor_ms)
            break;
    }
}

const char *bh__rungs_add(bh__rungs *self, const bh_policy *policy, bh_series series)
{
    int is_exact = bh__policy_jitter(policy) == BH_JITTER_NONE;
    if (!is_exact && bh__policy_max_ms(policy) < BH_TOPOLOGY_LOWEST_RUNG_MS)
        return "max_ms is below the ladder's lowest rung of 100 ms: raise max_ms, or take jitter none, whose exact "
               "delays "
               "are rungs";
    int64_t end = attempts_end(policy);
    for (int64_t attempt = 1; attempt < end; attempt = next_change(policy, series, attempt, end)) {
        span needed = span_of(policy, series, attempt);
        for (int64_t i = needed.first; i <= needed.last; i++)
            if (!add(self, is_exact ? i : grid_ms(series, (size_t)i)))
                return "strategy ladder would need more than 128 wait queues for this policy: add jitter, so that the "
                       "shared grid serves, take a coarser series, or lower max_ms";
    }
    add_demand(self, series, bh__policy_max_retry_after_ms(policy)); /* also of one attempt: it may be throttled */
    return NULL;
}

void bh__rungs_add_crash_rungs(bh__rungs *self, const bh_policy *policy, bh_series series)
{
    if (self->count + self->demand_count == 0)
        add_demand(self, series, bh__policy_highest_ms(policy, BH_POLICY_CRASH_RETRIES));
}

static int is_among(const int64_t *rungs_ms, size_t count, int64_t rung_ms)
{
    for (size_t i = 0; i < count && rungs_ms[i] <= rung_ms; i++)
        if (rungs_ms[i] == rung_ms)
            return 1;
    return 0;
}

int bh__rungs_include(const bh__rungs *self, const bh__rungs *other)
{
    for (size_t i = 0; i < other->count; i++)
        if (!bh__rungs_has(self, other->policy_ms[i]))
            return 0;
    for (size_t i = 0; i < other->demand_count; i++)
        if (!bh__rungs_has(self, other->demand_ms[i]) &&
            !is_among(self->demand_ms, self->demand_count, other->demand_ms[i]))
            return 0;
    return 1;
}

size_t bh__rungs_up_to(const bh__rungs *self, int64_t delay_ms)
{
    size_t count = 0;
    while (count < self->count && self->policy_ms[count] <= delay_ms)
        count++;
    return count;
}

int64_t bh__rungs_any_below_ms(const bh__rungs *self, int64_t delay_ms)
{
    size_t count = bh__rungs_up_to(self, delay_ms);
    int64_t rung = count > 0 ? self->policy_ms[count - 1] : 0;
    for (size_t i = 0; i < self->demand_count && self->demand_ms[i] <= delay_ms; i++)
        rung = self->demand_ms[i] > rung ? self->demand_ms[i] : rung;
    return rung;
}

int64_t bh__rungs_below_ms(const bh__rungs *self, int64_t delay_ms)
{
    size_t i = self->count;
    while (i > 1 && self->policy_ms[i - 1] > delay_ms)
        i--;
    return i > 0 ? self->policy_ms[i - 1] : 0;
}

int64_t bh__rungs_above_ms(const bh__rungs *self, int64_t delay_ms)
{
    size_t i = 0;
    while (i + 1 < self->count && self->policy_ms[i] < delay_ms)
        i++;
    return i < self->count ? self->policy_ms[i] : 0;
}

int64_t bh__rungs_any_above_ms(const bh__rungs *self, int64_t delay_ms)
{
    int64_t rung = 0;
    for (size_t i = self->count; i > 0 && self->policy_ms[i - 1] >= delay_ms; i--)
        rung = self->policy_ms[i - 1];
    for (size_t i = self->demand_count; i > 0 && self->demand_ms[i - 1] >= delay_ms; i--)
        if (rung == 0 || self->demand_ms[i - 1] < rung)
            rung = self->demand_ms[i - 1];
    return rung;
}

int bh__rungs_has(const bh__rungs *self, int64_t rung_ms)
{
    return is_among(self->policy_ms, self->count, rung_ms);
}
