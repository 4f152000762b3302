#include "flow/back_off.h"

int64_t bh__back_off_fail(bh__back_off *self, const bh_policy *policy, double u, int64_t now_ms)
{
    self->failures++;
    self->delay_ms = bh_policy_delay_ms(policy, self->failures, self->delay_ms, u);
    self->due_ms = now_ms > INT64_MAX - self->delay_ms ? INT64_MAX : now_ms + self->delay_ms;
    return self->delay_ms;
}

void bh__back_off_forget(bh__back_off *self)
{
    self->failures = self->delay_ms = 0;
}
