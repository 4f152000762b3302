/*
 * Decides about messages whose consumers were lost while the message was in hand.
 */
#include "delivery/internal.h"
#include "history/internal.h"
#include "plan/data.h"
#include "policy/internal.h"
#include "topology/internal.h"

#include <stdio.h>

/* Writes the copy's error: how often the message was delivered and not settled. */
static void write_error(char *out, size_t size, int64_t crashes)
{
    char times[32] = "";
    if (crashes > 1) /* 0: with strategy native, crashes count as attempts */
        snprintf(times, sizeof times, " %lld times", (long long)crashes);
    snprintf(out, size, "its consumer was lost, or gave it back,%s while it, or a message beside it, was in hand",
             times);
}

/*
 * Delays a message that was in hand when its consumer was lost, max_crashes times or more.
 *
 * Each wait is longer than the one before. Messages that were lost together come back at different
 * times, so that the message that crashes its consumer is alone in the end. The waits do not count
 * as attempts: whether the handler saw the message is unknown.
 */
static bh_status decide_crashed(bh_plan *self, const bh__plan_input *in)
{
    int64_t max_crashes = bh__policy_max_crashes(in->policy);
    int64_t counted = bh__history_counted_crashes(in->history) + 1;
    self->crashes = counted > max_crashes ? counted : max_crashes;
    int64_t wait = self->crashes - max_crashes + 1;
    if (wait > BH_POLICY_CRASH_RETRIES || bh__delivery_lost_headers(in->delivery)) /* its crashes may be among them */
        return bh__plan_park_copy(self, in, "poison");
    bh__plan_choose_crash_delay(self, in, wait);
    return self->delay_ms > 0 ? bh__plan_retry_copy(self, in, "poison") : bh__plan_park_copy(self, in, "poison");
}

static bh_status decide_guarded(bh_plan *self, const bh__plan_input *in)
{
    bh_strategy strategy = bh__topology_strategy(in->topology);
    int64_t max_crashes = bh__policy_max_crashes(in->policy);
    const bh_past past = bh__history_past(in->history);
    if (strategy == BH_STRATEGY_NATIVE) { /* attempts of another strategy alone are no crash */
        int is_used_up = bh__policy_is_last(in->policy, past.attempts);
        return is_used_up && past.delivery_count > 0 ? bh__plan_park_copy(self, in, "poison") : BH_OK;
    }
    if (max_crashes == 0 || past.crashes < max_crashes || past.crashes == bh__history_counted_crashes(in->history))
        return BH_OK;
    return strategy == BH_STRATEGY_REJECT ? bh__plan_park_copy(self, in, "poison") : decide_crashed(self, in);
}

bh_status bh_plan_guard(bh_plan *self, const bh_delivery *delivery, const bh_history *history, const bh_policy *policy,
                        const bh_topology *topology, int64_t now_ms, bh_bytes random)
{
    char error[160];
    const bh_past past = bh__history_past(history);
    write_error(error, sizeof error, past.crashes);
    bh__plan_input in = {delivery, history, policy,       topology,         bh_str(error),
                         now_ms,   random,  BH__PARK_OWN, past.traceparent, NULL};
    bh_status status = bh__plan_begin_decision(self, &in);
    if (status != BH_OK)
        return status;
    if (past.first_failure_ms < 0) /* a crash is no failure */
        self->first_failure_ms = -1;
    return bh__plan_end(self, decide_guarded(self, &in));
}
