/* Demands: the delays that policies need, and whether a strategy can serve them. */
#include "policy/internal.h"
#include "topology/data.h"

static int is_exact(const bh_policy *policy)
{
    return bh__policy_jitter(policy) == BH_JITTER_NONE;
}

/* The rungs or the fixed delays that policies need. */
typedef struct demand {
    bh__rungs rungs;       /* ladder */
    int64_t fixed_ms;      /* reject, native: the first delay */
    int64_t fixed_most_ms; /* reject, native: the highest delay */
} demand;

static const char *demand_of_reject(demand *self, const bh_policy *policy)
{
    bh__delays(policy, &self->fixed_ms, &self->fixed_most_ms);
    if (!is_exact(policy) || self->fixed_ms != self->fixed_most_ms)
        return "strategy reject has one fixed delay, and this policy has others: take strategy ladder, or a policy of "
               "kind fixed without jitter";
    return NULL;
}

static const char *demand_of_native(demand *self, const bh_policy *policy)
{
    bh_kind kind = bh__policy_kind(policy);
    if (!is_exact(policy) || (kind != BH_KIND_LINEAR && kind != BH_KIND_FIXED))
        return "strategy native has delays that grow by a constant, without jitter: take strategy ladder, or a policy "
               "of kind linear or fixed without jitter";
    if (bh__policy_max_age_ms(policy) > 0)
        return "strategy native does not know when a message first failed, so it has no max_age: leave it out, or "
               "take strategy ladder";
    self->fixed_ms = bh__policy_lowest_ms(policy, 1);
    self->fixed_most_ms = kind == BH_KIND_FIXED ? self->fixed_ms : bh__policy_max_ms(policy);
    return NULL;
}

static const char *demand_of_delayed_exchange(const bh_policy *policy)
{
    int64_t lowest_ms;
    int64_t highest_ms;
    bh__delays(policy, &lowest_ms, &highest_ms);
    if (highest_ms > BH__LONGEST_X_DELAY_MS)
        return "strategy delayed-exchange cannot delay by more than 4294967295 ms: lower max_ms, or take strategy "
               "ladder";
    if (bh__policy_max_retry_after_ms(policy) > BH__LONGEST_X_DELAY_MS)
        return "strategy delayed-exchange cannot delay by more than 4294967295 ms: lower max_retry_after_ms, or take "
               "strategy ladder";
    return NULL;
}

/*
 * Adds the demand of a policy. Returns NULL, or the reason why the strategy cannot serve the
 * policy.
 */
static const char *add_demand(demand *self, const bh_topology *topology, const bh_policy *policy)
{
    switch (topology->strategy) {
    case BH_STRATEGY_LADDER:
        return bh__rungs_add(&self->rungs, policy, topology->series);
    case BH_STRATEGY_MESSAGE_TTL:
        return NULL;
    case BH_STRATEGY_REJECT:
        return demand_of_reject(self, policy);
    case BH_STRATEGY_DELAYED_EXCHANGE:
        return demand_of_delayed_exchange(policy);
    case BH_STRATEGY_NATIVE:
        return demand_of_native(self, policy);
    }
    return NULL;
}

bh_status bh__topology_find_demand(bh_topology *self)
{
    demand all;
    bh__rungs_clear(&all.rungs);
    all.fixed_ms = all.fixed_most_ms = 0;
    const char *why_not = add_demand(&all, self, self->policy);
    self->fixed_ms = all.fixed_ms;
    self->fixed_most_ms = all.fixed_most_ms;
    for (size_t i = 0; !why_not && i < self->further_count; i++) {
        why_not = add_demand(&all, self, self->further[i]);
        if (!why_not && (all.fixed_ms != self->fixed_ms || all.fixed_most_ms != self->fixed_most_ms))
            why_not = "this strategy has the same delays for all messages, and the policies differ: give policies of "
                      "the same delays, or take strategy ladder";
    }
    if (self->strategy == BH_STRATEGY_LADDER)
        bh__rungs_add_crash_rungs(&all.rungs, self->policy, self->series);
    self->rungs = all.rungs;
    return why_not ? bh__topology_fail(self, BH_ERR_STRATEGY, why_not) : BH_OK;
}

int bh__topology_serves(const bh_topology *self, const bh_policy *policy)
{
    if (bh__policy_same(self->policy, policy))
        return 1;
    for (size_t i = 0; i < self->further_count; i++)
        if (bh__policy_same(self->further[i], policy))
            return 1;
    demand asked;
    bh__rungs_clear(&asked.rungs);
    asked.fixed_ms = asked.fixed_most_ms = 0;
    return !add_demand(&asked, self, policy) && bh__rungs_include(&self->rungs, &asked.rungs) &&
           asked.fixed_ms == self->fixed_ms && asked.fixed_most_ms == self->fixed_most_ms;
}

bh_status bh_topology_check_policy(const bh_topology *self, const bh_policy *policy)
{
    if (!self || !policy)
        return BH_ERR_ARGUMENT;
    if (!self->is_built)
        return BH_ERR_STATE;
    return bh__topology_serves(self, policy) ? BH_OK : BH_ERR_FOREIGN_POLICY;
}

int bh__topology_has_policy(const bh_topology *self, const bh_policy *policy)
{
    size_t i = 0;
    while (i < self->further_count && !bh__policy_same(self->further[i], policy))
        i++;
    return i < self->further_count;
}
