/* Policy, as the worker copies it. Internal. */
#ifndef BACKHOP_POLICY_INTERNAL_H
#define BACKHOP_POLICY_INTERNAL_H

#include <backhop/policy.h>

/* A copy that shares nothing with the original, in *out; NULL there: BH_ERR_NO_MEMORY. Free it with bh_policy_free. */
bh_status bh__policy_copy(bh_policy **out, const bh_policy *from);
/* 1 where both have the same delays, attempts and ages; what they say of crashes may differ. */
int bh__policy_same(const bh_policy *a, const bh_policy *b);

#endif
