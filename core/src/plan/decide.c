/*
 * Decides what happens to a delivery after its handler.
 */
#include "delivery/internal.h"
#include "history/internal.h"
#include "plan/data.h"
#include "policy/internal.h"
#include "topology/internal.h"
#include "base/traceparent.h"

/* Returns the time of the first failure: `now_ms` if the history has none, or if it lies in the
 * future. */
static int64_t first_failure_ms(const bh_history *history, int64_t now_ms)
{
    int64_t first_ms = bh__history_past(history).first_failure_ms;
    return first_ms >= 0 && first_ms < now_ms ? first_ms : now_ms;
}

bh_outcome bh_plan_outcome(const bh_history *history, const bh_policy *policy, const bh_topology *topology,
                           bh_outcome outcome)
{
    if (outcome != BH_OUTCOME_THROTTLED)
        return outcome;
    int64_t most = bh__policy_max_deferrals(policy);
    int is_used_up = most > 0 && bh__history_past(history).deferrals >= most;
    return is_used_up || !bh__topology_copies(topology) ? BH_OUTCOME_FAILED : outcome;
}

int bh__plan_may_park(const bh_history *history, const bh_policy *policy, const bh_topology *topology, bh_outcome given,
                      int64_t retry_after_ms, int64_t now_ms)
{
    bh_outcome outcome = bh_plan_outcome(history, policy, topology, given);
    if (outcome != BH_OUTCOME_FAILED && outcome != BH_OUTCOME_THROTTLED)
        return outcome == BH_OUTCOME_PERMANENT;
    if (outcome == BH_OUTCOME_FAILED && bh__policy_is_last(policy, bh__history_attempts(history) + 1))
        return 1;
    if (bh__policy_max_age_ms(policy) <= 0)
        return 0;
    int64_t asked_ms = bh__plan_granted_ms(policy, retry_after_ms), lowest_ms, highest_ms;
    bh__delays(policy, &lowest_ms, &highest_ms);
    int64_t delay_ms = asked_ms > highest_ms ? asked_ms : highest_ms;
    /* A delay is rounded up to a rung that is less than twice as long. */
    return bh__plan_is_too_old(policy, first_failure_ms(history, now_ms), now_ms, 2 * delay_ms);
}

bh_status bh__plan_begin(bh_plan *self, const bh__plan_input *in)
{
    if (!self || !in->delivery || !in->history || !in->topology || !in->random.data ||
        in->random.size != BH_PLAN_RANDOM_BYTES || !in->error.data)
        return BH_ERR_ARGUMENT;
    bh__plan_clear(self);
    return bh__delivery_is_open(in->delivery) || !bh__history_is_read(in->history) ||
                   !bh__topology_is_built(in->topology)
               ? BH_ERR_STATE
               : BH_OK;
}

bh_status bh__plan_end(bh_plan *self, bh_status status)
{
    if (self->no_memory)
        status = BH_ERR_NO_MEMORY;
    if (status != BH_OK)
        bh__plan_clear(self);
    return status;
}

static bh_status begin_at(bh_plan *self, const bh__plan_input *in)
{
    if (in->now_ms < 0 || in->now_ms >= INT64_C(1) << 53)
        return BH_ERR_ARGUMENT;
    bh_status status = bh__plan_begin(self, in);
    if (status != BH_OK)
        return status;
    self->attempts = bh__history_attempts(in->history);
    self->deferrals = bh__history_past(in->history).deferrals;
    self->first_failure_ms = first_failure_ms(in->history, in->now_ms);
    return BH_OK;
}

bh_status bh__plan_begin_decision(bh_plan *self, const bh__plan_input *in)
{
    bh_status status = in->policy ? begin_at(self, in) : BH_ERR_ARGUMENT;
    return status == BH_OK && !bh__topology_serves(in->topology, in->policy) ? BH_ERR_FOREIGN_POLICY : status;
}

int64_t bh__plan_failed_once_more(const bh_plan *self)
{
    return self->attempts < BH_HISTORY_MOST_ATTEMPTS ? self->attempts + 1 : BH_HISTORY_MOST_ATTEMPTS;
}

/* Decides how long the message waits after so many failures or deferrals. Parks it if it is too old
 * for that. */
static bh_status decide_wait(bh_plan *self, const bh__plan_input *in, int64_t failures, int64_t retry_after_ms)
{
    if (bh__delivery_lost_headers(in->delivery)) /* the count of attempts may be among them */
        return bh__plan_park_copy(self, in, "oversized");
    bh__plan_choose_delay(self, in, failures, retry_after_ms > 0 ? retry_after_ms : 0);
    if (bh__plan_is_too_old(in->policy, self->first_failure_ms, in->now_ms, self->delay_ms))
        return bh__plan_park_copy(self, in, "too-old");
    if (bh__topology_copies(in->topology))
        return bh__plan_retry_copy(self, in, "oversized");
    self->action = bh__topology_strategy(in->topology) == BH_STRATEGY_REJECT ? BH_ACTION_REJECT : BH_ACTION_RETURN;
    return BH_OK;
}

bh_status bh__plan_decide_failure(bh_plan *self, const bh__plan_input *in, int64_t retry_after_ms)
{
    return bh__policy_is_last(in->policy, self->attempts) ? bh__plan_park_copy(self, in, "exhausted")
                                                          : decide_wait(self, in, self->attempts, retry_after_ms);
}

static bh_status decide_deferral(bh_plan *self, const bh__plan_input *in, int64_t retry_after_ms)
{
    self->deferrals += self->deferrals < BH_HISTORY_MOST_ATTEMPTS;
    self->is_deferred = 1;
    return decide_wait(self, in, self->deferrals, retry_after_ms);
}

/* Decides that a message waits for about `pause_ms`, because no handler may get it now. */
static bh_status decide_pause(bh_plan *self, bh__plan_input *in, int64_t pause_ms)
{
    bh_past past = bh__history_past(in->history);
    if (!bh__topology_copies(in->topology))
        return BH_ERR_STRATEGY;
    if (in->error.size == 0)
        in->error = past.last_error;
    if (in->traceparent.size == 0)
        in->traceparent = past.traceparent;
    self->deferrals += self->deferrals < BH_HISTORY_MOST_ATTEMPTS;
    self->is_deferred = 1;
    self->first_failure_ms = past.first_failure_ms; /* a message that never failed has none */
    if (bh__delivery_lost_headers(in->delivery))
        return bh__plan_park_copy(self, in, "oversized");
    bh__plan_choose_pause(self, in, pause_ms > 0 ? pause_ms : 1);
    return bh__plan_retry_copy(self, in, "oversized");
}

bh_status bh_plan_make(bh_plan *self, const bh_delivery *delivery, const bh_history *history, const bh_policy *policy,
                       const bh_topology *topology, bh_outcome outcome, bh_bytes error, int64_t retry_after_ms,
                       int64_t now_ms, bh_bytes random)
{
    char traceparent[BH__TRACEPARENT_BYTES + 1] = "";
    if (self)
        memcpy(traceparent, self->traceparent, sizeof traceparent); /* as a decision empties the plan */
    bh__plan_input in = {delivery, history, policy, topology, error, now_ms, random, BH__PARK_OWN, bh_str(traceparent),
                         NULL};
    bh_status status = bh__plan_begin_decision(self, &in);
    if (status != BH_OK)
        return status;
    int64_t failed = bh__plan_failed_once_more(self);
    switch (bh_plan_outcome(history, policy, topology, outcome)) {
    case BH_OUTCOME_OK:
        self->action = BH_ACTION_ACK;
        return BH_OK;
    case BH_OUTCOME_DROPPED:
        self->action = BH_ACTION_DROP;
        return BH_OK;
    case BH_OUTCOME_FAILED:
        self->attempts = failed;
        return bh__plan_end(self, bh__plan_decide_failure(self, &in, retry_after_ms));
    case BH_OUTCOME_PERMANENT:
        self->attempts = failed;
        return bh__plan_end(self, bh__plan_park_copy(self, &in, "permanent"));
    case BH_OUTCOME_THROTTLED:
        return bh__plan_end(self, decide_deferral(self, &in, retry_after_ms));
    case BH_OUTCOME_DEFERRED:
        return bh__plan_end(self, decide_pause(self, &in, retry_after_ms));
    case BH_OUTCOME_RELEASED: /* bh_ledger_give_back needs no plan */
        break;
    }
    return bh__plan_end(self, BH_ERR_ARGUMENT);
}

bh_status bh__plan_park(bh_plan *self, const bh_delivery *delivery, const bh_history *history,
                        const bh_topology *topology, bh__park_place place, const char *reason, bh_bytes error,
                        int64_t now_ms, bh_bytes random)
{
    bh__plan_input in = {delivery, history, NULL, topology, error, now_ms, random, place, bh_str(""), NULL};
    bh_status status = begin_at(self, &in);
    if (status != BH_OK)
        return status;
    if (place != BH__PARK_STRAY)
        self->attempts = bh__plan_failed_once_more(self);
    return bh__plan_end(self, bh__plan_park_copy(self, &in, reason));
}
