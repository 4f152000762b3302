/*
 * Back-off: when a failed step is tried again. The worker, bh_subscription and bh_ledger share this
 * rule. Internal.
 *
 * The delays grow until a message is settled, or the broker answers a publish. A connection, a
 * channel, a consumer or a delivery is not enough: each of them can end at once, again and again.
 */
#ifndef BACKHOP_FLOW_BACK_OFF_H
#define BACKHOP_FLOW_BACK_OFF_H

#include <backhop/policy.h>

/* Zeroed: now. */
typedef struct bh__back_off {
    int64_t failures; /* in a row */
    int64_t delay_ms; /* the last delay */
    int64_t due_ms;   /* monotonic */
} bh__back_off;

/*
 * Counts a failure. Returns the delay of the next attempt, in ms.
 *
 * u: the random number, 0 to below 1.
 */
int64_t bh__back_off_fail(bh__back_off *self, const bh_policy *policy, double u, int64_t now_ms);
/* Forgets the failures, because a message was settled or a publish was answered. An attempt that
 * waits keeps its time. */
void bh__back_off_forget(bh__back_off *self);

#endif
