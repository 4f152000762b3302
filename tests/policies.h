/* Policies: changes one field of a policy, for tests. Each function fails as bh_policy_set. */
#ifndef BACKHOP_TESTS_POLICIES_H
#define BACKHOP_TESTS_POLICIES_H

#include <backhop/policy.h>
#include <string.h>

static inline bh_policy_settings settings_of(const bh_policy *policy)
{
    bh_policy_settings settings;
    bh_policy_read(policy, &settings);
    return settings;
}

#define SETTER(field, type)                                                                                            \
    static inline bh_status policy_set_##field(bh_policy *policy, type value)                                          \
    {                                                                                                                  \
        bh_policy_settings settings = settings_of(policy);                                                             \
        settings.field = value;                                                                                        \
        return bh_policy_set(policy, &settings);                                                                       \
    }
SETTER(kind, bh_kind)
SETTER(initial_ms, int64_t)
SETTER(factor, double)
SETTER(max_ms, int64_t)
SETTER(max_attempts, int64_t)
SETTER(max_age_ms, int64_t)
SETTER(max_retry_after_ms, int64_t)
SETTER(max_crashes, int64_t)
SETTER(max_deferrals, int64_t)
#undef SETTER

static inline bh_status policy_set_jitter(bh_policy *policy, bh_jitter jitter, double ratio)
{
    bh_policy_settings settings = settings_of(policy);
    settings.jitter = jitter;
    settings.ratio = ratio;
    return bh_policy_set(policy, &settings);
}

static inline bh_status policy_add_step_ms(bh_policy *policy, int64_t step_ms)
{
    int64_t steps_ms[BH_POLICY_MOST_STEPS + 1];
    bh_policy_settings settings = settings_of(policy);
    if (settings.step_count)
        memcpy(steps_ms, settings.steps_ms, settings.step_count * sizeof *steps_ms);
    steps_ms[settings.step_count++] = step_ms;
    settings.steps_ms = steps_ms;
    return bh_policy_set(policy, &settings);
}

#endif
