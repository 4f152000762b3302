/* Subscription: when a consumer declares, consumes, waits or gives up. */
#include "base/memory.h"
#include "flow/back_off.h"
#include "policy/internal.h"

#include <backhop/adapter/subscription.h>
#include <stdlib.h>

typedef enum state {
    WAITING, /* for the end of the back-off */
    DECLARING,
    DECLARED,
    SUBSCRIBING,
    CONSUMING,
    OVER /* stopped, or the first attempt failed */
} state;

struct bh_subscription {
    bh_policy *policy;
    bh__back_off back_off;
    uint64_t random;
    state state;
    int was_consuming;   /* once */
    int gives_up;        /* BH_SUBSCRIPTION_GIVE_UP is due */
    bh_event_kind event; /* to be emitted; BH_EVENT_LAST: none */
    bh_status status;    /* of the event, or of giving up */
    int64_t delay_ms;    /* of the event */
};

bh_status bh_subscription_new(bh_subscription **out, const bh_policy *back_off, bh_bytes random)
{
    if (!out)
        return BH_ERR_ARGUMENT;
    *out = NULL;
    if (!back_off || !random.data || random.size != BH_SUBSCRIPTION_RANDOM_BYTES)
        return BH_ERR_ARGUMENT;
    bh_subscription *self = calloc(1, sizeof *self);
    if (!self)
        return BH_ERR_NO_MEMORY;
    self->event = BH_EVENT_LAST;
    self->random = bh__seed(random.data);
    self->back_off.due_ms = INT64_MIN;
    bh_status status = bh__policy_copy(&self->policy, back_off);
    if (status != BH_OK) {
        bh_subscription_free(self);
        return status;
    }
    *out = self;
    return BH_OK;
}

void bh_subscription_free(bh_subscription *self)
{
    if (!self)
        return;
    bh_policy_free(self->policy);
    free(self);
}

static void queue_event(bh_subscription *self, bh_event_kind event, bh_status status, int64_t delay_ms)
{
    self->event = event;
    self->status = status;
    self->delay_ms = delay_ms;
}

/* Ends an attempt or a consumer. The first attempt is the last one if it fails. */
static void fail(bh_subscription *self, bh_event_kind event, bh_status status, int64_t now_ms)
{
    if (!self->was_consuming) {
        self->state = OVER;
        self->gives_up = 1;
        queue_event(self, BH_EVENT_LAST, status, 0);
        return;
    }
    self->state = WAITING;
    int64_t delay_ms = bh__back_off_fail(&self->back_off, self->policy, bh__draw_number(&self->random), now_ms);
    queue_event(self, event, status, delay_ms);
}

/* ---------------------------------------------------------------------------------------- steps */

/* Returns the step of an attempt that may go on now. */
static bh_subscription_kind begin_step(bh_subscription *self)
{
    self->state = self->state == WAITING ? DECLARING : SUBSCRIBING;
    return self->state == DECLARING ? BH_SUBSCRIPTION_DECLARE : BH_SUBSCRIPTION_CONSUME;
}

void bh_subscription_next(bh_subscription *self, int may_subscribe, int64_t now_ms, bh_subscription_step *out)
{
    if (!out)
        return;
    *out = (bh_subscription_step){.event = BH_EVENT_LAST, .due_ms = BH_SUBSCRIPTION_NEVER};
    if (!self)
        return;
    if (self->event != BH_EVENT_LAST) {
        out->kind = BH_SUBSCRIPTION_EMIT;
        out->event = self->event;
        out->status = self->status;
        out->delay_ms = self->delay_ms;
        self->event = BH_EVENT_LAST;
    } else if (self->gives_up) {
        out->kind = BH_SUBSCRIPTION_GIVE_UP;
        out->status = self->status;
        self->gives_up = 0;
    } else if (may_subscribe && (self->state == DECLARED || self->state == WAITING)) {
        if (self->state == DECLARED || now_ms >= self->back_off.due_ms)
            out->kind = begin_step(self);
        else
            out->due_ms = self->back_off.due_ms;
    }
}

/* --------------------------------------------------------------------------------------- events */

void bh_subscription_declared(bh_subscription *self)
{
    if (self && self->state == DECLARING)
        self->state = DECLARED;
}

void bh_subscription_subscribed(bh_subscription *self)
{
    if (!self || self->state == CONSUMING || self->state == OVER)
        return;
    self->state = CONSUMING;
    self->was_consuming = 1;
    queue_event(self, BH_EVENT_CONNECTED, BH_OK, 0);
}

static bh_status status_of(bh_loss loss)
{
    switch (loss) {
    case BH_LOSS_CONSUMER:
        return BH_ERR_CANCELLED;
    case BH_LOSS_CHANNEL:
        return BH_ERR_CHANNEL;
    case BH_LOSS_CONNECTION:
        break;
    }
    return BH_ERR_CONNECTION;
}

void bh_subscription_lost(bh_subscription *self, bh_loss loss, int64_t now_ms)
{
    if (!self || self->state == WAITING || self->state == OVER)
        return;
    bh_event_kind event = loss == BH_LOSS_CONNECTION ? BH_EVENT_LAST
                          : self->state == CONSUMING ? BH_EVENT_CANCELLED
                                                     : BH_EVENT_UNAVAILABLE;
    fail(self, event, status_of(loss), now_ms);
}

void bh_subscription_failed(bh_subscription *self, bh_status status, int64_t now_ms)
{
    if (self && self->state != WAITING && self->state != OVER)
        fail(self, BH_EVENT_UNAVAILABLE, status, now_ms);
}

void bh_subscription_settled(bh_subscription *self)
{
    if (self)
        bh__back_off_forget(&self->back_off);
}

void bh_subscription_stop(bh_subscription *self)
{
    if (!self)
        return;
    self->state = OVER;
    self->gives_up = 0;
    self->event = BH_EVENT_LAST;
}

int bh_subscription_is_consuming(const bh_subscription *self)
{
    return self && self->state == CONSUMING;
}
