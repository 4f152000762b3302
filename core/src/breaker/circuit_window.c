/* Counts of a closed breaker: the kinds of calls, their window, and the ramp. */
#include "breaker/data.h"

bh_call_kind bh_call_kind_of(bh_outcome outcome, int is_downstreams)
{
    switch (outcome) {
    case BH_OUTCOME_OK:
        return BH_CALL_SUCCESS;
    case BH_OUTCOME_FAILED:
        return is_downstreams ? BH_CALL_FAILURE : BH_CALL_IGNORED;
    case BH_OUTCOME_THROTTLED:
        return BH_CALL_THROTTLED;
    default:
        return BH_CALL_IGNORED;
    }
}

static void clear(bh__window *self, int64_t number)
{
    bh__bucket *bucket = &self->buckets[number % BH_BREAKER_BUCKETS];
    self->sum.calls -= bucket->calls;
    self->sum.failures -= bucket->failures;
    self->sum.slow -= bucket->slow;
    *bucket = (bh__bucket){0};
}

void bh__window_move(bh__window *self, int64_t clock, int64_t window_ms)
{
    if (clock < self->end)
        return;
    int64_t length = window_ms / BH_BREAKER_BUCKETS;
    int64_t number = clock / length;
    int64_t first = number - self->number > BH_BREAKER_BUCKETS ? number - BH_BREAKER_BUCKETS : self->number;
    for (int64_t i = first + 1; i <= number; i++)
        clear(self, i);
    self->number = number;
    self->end = (number + 1) * length;
}

void bh__window_count(bh__window *self, int failed, int slow)
{
    bh__bucket *bucket = &self->buckets[self->number % BH_BREAKER_BUCKETS];
    bucket->calls++;
    bucket->failures += failed;
    bucket->slow += slow;
    self->sum.calls++;
    self->sum.failures += failed;
    self->sum.slow += slow;
}

void bh__ramp_step(bh__ramp *self, int64_t limit, int64_t number)
{
    self->limit = limit;
    self->step_from = number + 1;
    self->step_calls = self->step_failures = 0;
}

void bh__ramp_count(bh__ramp *self, const bh_breaker_settings *settings, int64_t permit, int64_t number, int is_bad)
{
    if (permit < self->step_from)
        return;
    self->step_calls++;
    self->step_failures += is_bad;
    /* A step fails by the same share as the window: bad messages alone do not hold the ramp
     * down. */
    if (self->step_failures * 100 >= settings->failure_percent * self->limit)
        bh__ramp_step(self, self->limit > 1 ? self->limit / 2 : 1, number);
    else if (self->step_calls >= self->limit && self->limit >= settings->ramp_calls)
        bh__ramp_step(self, 0, number);
    else if (self->step_calls >= self->limit)
        bh__ramp_step(self, self->limit * 2 < settings->ramp_calls ? self->limit * 2 : settings->ramp_calls, number);
}
