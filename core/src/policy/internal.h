/* Policy: the functions that higher floors need. Internal. */
#ifndef BACKHOP_POLICY_INTERNAL_H
#define BACKHOP_POLICY_INTERNAL_H

#include <backhop/policy.h>

/*
 * Copies a policy to *out; free the copy with bh_policy_free.
 *
 * Errors: BH_ERR_NO_MEMORY; *out is NULL then.
 */
bh_status bh__policy_copy(bh_policy **out, const bh_policy *from);
/* Returns 1 if both policies have the same delays, attempts and ages. Limits of crashes and
 * deferrals may differ. */
int bh__policy_same(const bh_policy *self, const bh_policy *other);

bh_kind bh__policy_kind(const bh_policy *self);
/* Returns the jitter. Spread with ratio 0 is BH_JITTER_NONE. */
bh_jitter bh__policy_jitter(const bh_policy *self);

/* Limits in force; see bh_limits. 0 if self is NULL. */
int64_t bh__policy_max_attempts(const bh_policy *self);
int64_t bh__policy_max_ms(const bh_policy *self);
int64_t bh__policy_max_age_ms(const bh_policy *self);
int64_t bh__policy_max_retry_after_ms(const bh_policy *self);
int64_t bh__policy_max_crashes(const bh_policy *self);
int64_t bh__policy_max_deferrals(const bh_policy *self);
/* Returns 1 if max_attempts allows no attempt after this one (1, 2, ...). */
int bh__policy_is_last(const bh_policy *self, int64_t attempt);

/* Fields of bh_preview, each without the cost of the sum. */
int64_t bh__policy_lowest_ms(const bh_policy *self, int64_t attempt);
int64_t bh__policy_mean_ms(const bh_policy *self, int64_t attempt);
int64_t bh__policy_highest_ms(const bh_policy *self, int64_t attempt);

#endif
