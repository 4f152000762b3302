/* Flow: holds, cancels, defers and consumes again, by the state of a breaker. */
#include "breaker/internal.h"
#include "topology/internal.h"

#include <backhop/adapter/flow.h>
#include <stdlib.h>

enum {
    LEAST_DEFERRAL_MS = 1000,
    BLIND_DEFERRAL_MS = 60000 /* the breaker was opened by hand, without an end */
};

struct bh_flow {
    bh_breaker *breaker;
    int can_defer;
    int is_cancelled;
    int64_t generation;    /* of the breaker, at the last event */
    int64_t held_since_ms; /* messages are held, and the breaker is not closed; -1: not so */
    bh_breaker_view view;  /* at the last step */
    int64_t now_ms;
};

bh_status bh_flow_new(bh_flow **out, bh_breaker *breaker, const bh_topology *topology)
{
    if (!out)
        return BH_ERR_ARGUMENT;
    *out = NULL;
    if (!breaker || !topology || bh__breaker_is_by_key(breaker))
        return BH_ERR_ARGUMENT;
    if (!bh__topology_is_built(topology))
        return BH_ERR_STATE;
    bh_flow *self = calloc(1, sizeof *self);
    if (!self)
        return BH_ERR_NO_MEMORY;
    self->breaker = bh__breaker_keep(breaker);
    self->can_defer = bh__topology_defers(topology);
    self->held_since_ms = -1;
    self->generation = 1; /* a new breaker is closed: that is no event */
    *out = self;
    return BH_OK;
}

void bh_flow_free(bh_flow *self)
{
    if (!self)
        return;
    bh_breaker_free(self->breaker);
    free(self);
}

int bh_flow_is_cancelled(const bh_flow *self)
{
    return self && self->is_cancelled;
}

static bh_event_kind event_of(bh_breaker_state state)
{
    switch (state) {
    case BH_BREAKER_OPEN:
        return BH_EVENT_BREAKER_OPENED;
    case BH_BREAKER_HALF_OPEN:
        return BH_EVENT_BREAKER_HALF_OPEN;
    default:
        return BH_EVENT_BREAKER_CLOSED;
    }
}

/* Returns 1 if messages are held because of the downstream, not because all handlers are busy. */
static int is_paused(const bh_flow *self)
{
    return self->view.state == BH_BREAKER_OPEN || self->view.state == BH_BREAKER_HALF_OPEN;
}

/* Keeps since when messages are held. A clock that went back begins anew. */
static void note_held(bh_flow *self, int64_t held)
{
    if (held <= 0 || !is_paused(self))
        self->held_since_ms = -1;
    else if (self->held_since_ms < 0 || self->held_since_ms > self->now_ms)
        self->held_since_ms = self->now_ms;
}

/* Returns how long a held message waits: until the pause or the probe ends. */
static int64_t deferral_ms(const bh_flow *self)
{
    if (self->view.until_ms == BH_BREAKER_NEVER)
        return BLIND_DEFERRAL_MS;
    int64_t left_ms = self->view.until_ms - self->now_ms;
    return left_ms > LEAST_DEFERRAL_MS ? left_ms : LEAST_DEFERRAL_MS;
}

/* Returns 1 if the held messages have waited too long. */
static int is_hold_over(const bh_flow *self)
{
    return self->can_defer && self->held_since_ms >= 0 &&
           (self->is_cancelled || self->now_ms - self->held_since_ms >= BH_FLOW_HOLD_MS);
}

/* Sets a rest. Other consumers of the breaker, and calls by hand, can change its state at any
 * time. */
static void rest(const bh_flow *self, int64_t held, bh_flow_step *out)
{
    out->is_limiting = is_paused(self) || (held > 0 && !self->view.grants);
    out->due_ms = self->now_ms + (out->is_limiting ? BH_FLOW_LOOK_MS : BH_FLOW_IDLE_LOOK_MS);
}

/* Reads the state. A probe that takes too long is lost: only a permit or a record finds that. */
static void look(bh_flow *self)
{
    bh_permit permit;
    bh_breaker_read(self->breaker, bh_str(""), self->now_ms, &self->view);
    if (self->view.state != BH_BREAKER_HALF_OPEN || self->view.until_ms == BH_BREAKER_NEVER ||
        self->now_ms < self->view.until_ms)
        return;
    bh_breaker_permit(self->breaker, bh_str(""), self->now_ms, &permit);
    bh_breaker_record(self->breaker, bh_str(""), &permit, &(bh_call){.kind = BH_CALL_IGNORED},
                      self->now_ms); /* if it was granted */
    bh_breaker_read(self->breaker, bh_str(""), self->now_ms, &self->view);
}

void bh_flow_next(bh_flow *self, int64_t held, int64_t now_ms, bh_flow_step *out)
{
    if (!out)
        return;
    *out = (bh_flow_step){.event = BH_EVENT_LAST};
    if (!self)
        return;
    self->now_ms = now_ms;
    look(self);
    note_held(self, held);
    if (self->view.generation != self->generation) {
        self->generation = self->view.generation;
        out->kind = BH_FLOW_EMIT;
        out->event = event_of(self->view.state);
    } else if (self->view.grants && self->is_cancelled) {
        self->is_cancelled = 0;
        out->kind = BH_FLOW_CONSUME;
    } else if (self->view.grants && held > 0) {
        out->kind = BH_FLOW_CALL;
        out->due_ms = self->now_ms + BH_FLOW_IDLE_LOOK_MS;
    } else if (is_hold_over(self)) {
        out->kind = self->is_cancelled ? BH_FLOW_DEFER : BH_FLOW_CANCEL;
        out->delay_ms = self->is_cancelled ? deferral_ms(self) : 0;
        self->is_cancelled = 1;
    } else {
        rest(self, held, out);
    }
}

/* Does as bh_flow_next, and leaves `self` as it is. Returns the flow behind the step. */
static bh_flow try_next(const bh_flow *self, int64_t held, int64_t now_ms, bh_flow_step *out)
{
    bh_flow copy = *self;
    bh_flow_next(&copy, held, now_ms, out);
    return copy;
}

int bh_flow_is_due(const bh_flow *self, int64_t held, int64_t now_ms)
{
    bh_flow_step step = {.kind = BH_FLOW_REST};
    if (self)
        try_next(self, held, now_ms, &step);
    return step.kind != BH_FLOW_REST;
}

void bh_flow_permit(bh_flow *self, int64_t now_ms, bh_permit *out)
{
    bh_flow_step step;
    if (!out)
        return;
    *out = (bh_permit){.generation = 0};
    if (!self)
        return;
    bh_flow copy = try_next(self, 0, now_ms, &step);
    if (step.kind == BH_FLOW_REST && !is_paused(&copy))
        bh_breaker_permit(self->breaker, bh_str(""), now_ms, out);
}

bh_status bh_flow_describe(const bh_flow *self, bh_event *event)
{
    if (!self || !event)
        return BH_ERR_ARGUMENT;
    bh_bytes name = bh__breaker_name(self->breaker);
    bh_status status = name.size ? bh_event_set_string(event, BH_FIELD_BREAKER, name) : BH_OK;
    if (status == BH_OK)
        status = bh_event_set_string(event, BH_FIELD_TEXT, bh_str(self->view.reason));
    if (status == BH_OK && self->view.state == BH_BREAKER_OPEN && self->view.until_ms > self->now_ms)
        status = bh_event_set_int(event, BH_FIELD_DELAY, self->view.until_ms - self->now_ms);
    return status;
}
