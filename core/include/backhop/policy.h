/*
 * Policy: how long, how often, how random, when to give up. Times are whole milliseconds.
 *
 *     bh_policy *policy;
 *     bh_policy_new(&policy);                     exponential from 1 s by 2 up to 5 min, spread 0.2, 10 attempts
 *     bh_policy_set_initial_ms(policy, 10000);
 *     bh_policy_set_factor(policy, 3);
 *     bh_policy_set_max_ms(policy, 3600000);
 *     if (bh_policy_check(policy) != BH_OK) puts(bh_policy_error(policy).data);
 */
#ifndef BACKHOP_POLICY_H
#define BACKHOP_POLICY_H

#include <backhop/status.h>
#include <stdint.h>

BH_BEGIN_DECLS

#define BH_POLICY_LONGEST_MS INT64_C(100000000000) /* no delay, step, cap or age is longer: three years */
#define BH_POLICY_MOST_STEPS 1000
#define BH_POLICY_MOST_ATTEMPTS INT64_C(1000000000)
/*
 * So many waits has a message after max_crashes crashes, and no crash more between two of them, before bh_plan_guard
 * parks it. With the default of 5 that is twenty crashes that park nothing, as many as RabbitMQ 4's own delivery limit.
 * With the default policy's delays all of them together take less than two minutes for one message in 10^10.
 */
#define BH_POLICY_CRASH_WAITS 16

typedef enum bh_kind { BH_KIND_EXPONENTIAL, BH_KIND_LINEAR, BH_KIND_FIXED, BH_KIND_STEPS } bh_kind;

typedef enum bh_jitter {
    BH_JITTER_NONE,
    BH_JITTER_SPREAD,      /* d * (1 - r + 2ru), d first lowered to max / (1 + r) so that the cap keeps its spread */
    BH_JITTER_EQUAL,       /* d / 2 + u * d / 2 */
    BH_JITTER_FULL,        /* u * d */
    BH_JITTER_DECORRELATED /* min(max, initial + u * (3 * previous - initial)) */
} bh_jitter;

typedef struct bh_policy bh_policy;

/* A policy with every default in *out; free it with bh_policy_free. BH_ERR_NO_MEMORY, BH_ERR_ARGUMENT. */
BH_API bh_status bh_policy_new(bh_policy **out);
/* Frees the policy; NULL is allowed. */
BH_API void bh_policy_free(bh_policy *self);

/* Each setter returns BH_ERR_POLICY for a value out of its range and leaves the policy as it was. */
BH_API bh_status bh_policy_set_kind(bh_policy *self, bh_kind kind);
/* Delay after the first failure, in ms: 1 to BH_POLICY_LONGEST_MS. */
BH_API bh_status bh_policy_set_initial_ms(bh_policy *self, int64_t initial_ms);
/* Exponential only: what each delay is multiplied by, 1 or more, finite. */
BH_API bh_status bh_policy_set_factor(bh_policy *self, double factor);
/* No delay is above it, jitter included; in ms, 1 to BH_POLICY_LONGEST_MS. Kind steps has no cap until this is set. */
BH_API bh_status bh_policy_set_max_ms(bh_policy *self, int64_t max_ms);
/* Adds the next delay of kind steps, in ms: 1 to BH_POLICY_LONGEST_MS; at most BH_POLICY_MOST_STEPS. */
BH_API bh_status bh_policy_add_step_ms(bh_policy *self, int64_t step_ms);
/* `ratio` is the r of spread, 0 to 1 (0 is jitter none); the others ignore it. */
BH_API bh_status bh_policy_set_jitter(bh_policy *self, bh_jitter jitter, double ratio);
/* How often a handler sees a message in all, the first time included: 1 to BH_POLICY_MOST_ATTEMPTS; 0: no limit. */
BH_API bh_status bh_policy_set_max_attempts(bh_policy *self, int64_t max_attempts);
/* Age from the first failure, in ms; a retry that would start later parks instead. 0: no limit. */
BH_API bh_status bh_policy_set_max_age_ms(bh_policy *self, int64_t max_age_ms);
/* Cap on the delay that a handler may ask for, in ms: 0 (requests are ignored) to BH_POLICY_LONGEST_MS. */
BH_API bh_status bh_policy_set_max_retry_after_ms(bh_policy *self, int64_t max_retry_after_ms);
/*
 * Crashes (bh_history_crashes) at which bh_plan_guard sends a message round a wait, or with strategy reject parks it,
 * before a handler sees it again: 1 to BH_POLICY_MOST_ATTEMPTS; default 5; 0: no limit. Strategy native counts crashes
 * as attempts instead.
 */
BH_API bh_status bh_policy_set_max_crashes(bh_policy *self, int64_t max_crashes);

/* BH_ERR_POLICY where fields contradict each other: kind steps without steps or with decorrelated jitter, steps with
 * another kind, initial or a step above max. */
BH_API bh_status bh_policy_check(bh_policy *self);
/* What is wrong with the policy, after a call on it returned BH_ERR_POLICY: the field, its value, what to do. */
BH_API bh_bytes bh_policy_error(const bh_policy *self);

BH_API bh_kind bh_policy_kind(const bh_policy *self);
BH_API bh_jitter bh_policy_jitter(const bh_policy *self);
/* The limit in force: 10, or the number of steps + 1, where none was set; 0: no limit. */
BH_API int64_t bh_policy_max_attempts(const bh_policy *self);
/* 1 where nothing comes after that attempt (1, 2, ...) if it fails, as the limit on attempts says; one of age may end it before. */
BH_API int bh_policy_is_last(const bh_policy *self, int64_t attempt);
/* The cap in force, in ms. */
BH_API int64_t bh_policy_max_ms(const bh_policy *self);
BH_API int64_t bh_policy_max_age_ms(const bh_policy *self);
BH_API int64_t bh_policy_max_retry_after_ms(const bh_policy *self);
BH_API int64_t bh_policy_max_crashes(const bh_policy *self);

/*
 * The delay after the `attempt`-th failure (1, 2, ...), in ms, at least 1. `u` in [0, 1) is the random number; a value
 * outside is taken as the nearest inside, NaN as 0. `previous_ms` is the delay before this one, for decorrelated
 * jitter; one below initial, 0 included, is taken as initial. Past the last step, the last step stays.
 */
BH_API int64_t bh_policy_delay_ms(const bh_policy *self, int64_t attempt, int64_t previous_ms, double u);

/*
 * Preview: the lowest, mean and highest delay after the `attempt`-th failure, and the sum of the means up to it, in ms.
 * With decorrelated jitter the mean is the one that follows a mean previous delay: exact until max is reached, and a
 * little high from there on. Attempts after the millionth are summed as the millionth. This is the formula alone: what
 * waits make of it, as the ladder's rungs, bh_topology_lowest_ms and its kin tell.
 */
BH_API int64_t bh_policy_lowest_ms(const bh_policy *self, int64_t attempt);
BH_API int64_t bh_policy_mean_ms(const bh_policy *self, int64_t attempt);
BH_API int64_t bh_policy_highest_ms(const bh_policy *self, int64_t attempt);
BH_API int64_t bh_policy_total_ms(const bh_policy *self, int64_t attempt);

BH_END_DECLS

#endif
