/*
 * Chooses how long a message waits before its next attempt.
 */
#include "history/internal.h"
#include "plan/data.h"
#include "policy/internal.h"
#include "topology/internal.h"

/*
 * Chooses one of two rungs for a delay between them, so that the mean of many choices is the delay.
 *
 * Returns no rung above most_ms: the topology may have rungs for policies with longer delays.
 */
static int64_t choose_between(int64_t below, int64_t above, int64_t delay_ms, int64_t most_ms, double random)
{
    if (delay_ms <= below || above <= below || above > most_ms)
        return below;
    if (delay_ms >= above)
        return above;
    return random < (double)(delay_ms - below) / (double)(above - below) ? above : below;
}

static int64_t choose_rung(const bh__rungs *rungs, int64_t delay_ms, int64_t most_ms, double random)
{
    return choose_between(bh__rungs_below_ms(rungs, delay_ms), bh__rungs_above_ms(rungs, delay_ms), delay_ms, most_ms,
                          random);
}

int64_t bh__plan_granted_ms(const bh_policy *policy, int64_t retry_after_ms)
{
    int64_t cap_ms = bh__policy_max_retry_after_ms(policy);
    return retry_after_ms < cap_ms ? retry_after_ms : cap_ms;
}

void bh__plan_choose_delay(bh_plan *self, const bh__plan_input *in, int64_t failures, int64_t retry_after_ms)
{
    const bh__rungs *rungs = bh__topology_rungs(in->topology);
    int64_t floor_ms = bh__plan_granted_ms(in->policy, retry_after_ms);
    int64_t delay_ms = bh_policy_delay_ms(in->policy, failures, bh__history_past(in->history).last_delay_ms,
                                          bh__random_number(in->random.data));
    switch (bh__topology_strategy(in->topology)) {
    case BH_STRATEGY_LADDER:
        self->delay_ms =
            choose_rung(rungs, delay_ms, bh__policy_max_ms(in->policy), bh__random_number(in->random.data + 8));
        if (self->delay_ms == 0 || self->delay_ms < floor_ms)
            self->delay_ms = bh__rungs_any_above_ms(rungs, delay_ms > floor_ms ? delay_ms : floor_ms);
        if (self->delay_ms == 0 && floor_ms > 0) /* the policy's delay is above every rung */
            self->delay_ms = bh__rungs_any_above_ms(rungs, floor_ms);
        if (self->delay_ms == 0)
            self->delay_ms = bh__rungs_any_below_ms(rungs, INT64_MAX);
        self->is_on_demand = !bh__rungs_has(rungs, self->delay_ms);
        break;
    case BH_STRATEGY_MESSAGE_TTL:
    case BH_STRATEGY_DELAYED_EXCHANGE:
        self->delay_ms = delay_ms > floor_ms ? delay_ms : floor_ms;
        break;
    case BH_STRATEGY_REJECT:
    case BH_STRATEGY_NATIVE:
        self->delay_ms = delay_ms;
        break;
    }
    self->is_retry_after_met = retry_after_ms <= self->delay_ms;
}

void bh__plan_choose_pause(bh_plan *self, const bh__plan_input *in, int64_t pause_ms)
{
    const bh__rungs *rungs = bh__topology_rungs(in->topology);
    bh_strategy strategy = bh__topology_strategy(in->topology);
    int64_t most_ms = strategy == BH_STRATEGY_DELAYED_EXCHANGE ? BH__LONGEST_X_DELAY_MS : BH_POLICY_LONGEST_MS;
    self->delay_ms = pause_ms < 1 ? 1 : pause_ms < most_ms ? pause_ms : most_ms;
    if (strategy == BH_STRATEGY_LADDER) {
        int64_t below = bh__rungs_any_below_ms(rungs, self->delay_ms);
        self->delay_ms = below > 0 ? below : bh__rungs_any_above_ms(rungs, self->delay_ms);
        self->is_on_demand = !bh__rungs_has(rungs, self->delay_ms);
    }
    self->is_retry_after_met = pause_ms <= self->delay_ms;
}

void bh__plan_choose_crash_delay(bh_plan *self, const bh__plan_input *in, int64_t wait)
{
    int64_t most_ms = bh__policy_highest_ms(in->policy, wait);
    int64_t delay_ms = (int64_t)(bh__random_number(in->random.data) * (double)most_ms + 0.5);
    const bh__rungs *rungs = bh__topology_rungs(in->topology);
    double random = bh__random_number(in->random.data + 8);
    if (bh__topology_strategy(in->topology) != BH_STRATEGY_LADDER) {
        self->delay_ms = delay_ms > 1 ? delay_ms : 1;
    } else if (bh__rungs_up_to(rungs, most_ms) > 1) {
        self->delay_ms = choose_rung(rungs, delay_ms, most_ms, random);
    } else {
        int64_t below = bh__rungs_any_below_ms(rungs, delay_ms);
        int64_t above = bh__rungs_any_above_ms(rungs, delay_ms);
        self->delay_ms = below == 0 ? above : choose_between(below, above, delay_ms, most_ms, random);
        self->is_on_demand = self->delay_ms > 0 && !bh__rungs_has(rungs, self->delay_ms);
    }
}

int bh__plan_is_too_old(const bh_policy *policy, int64_t first_failure_ms, int64_t now_ms, int64_t delay_ms)
{
    int64_t max_age_ms = bh__policy_max_age_ms(policy);
    return max_age_ms > 0 && now_ms - first_failure_ms + delay_ms > max_age_ms;
}
