#include "breaker_model.h"
#include "../policies.h"
#include "model.h"

#include <backhop/breaker.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    MOST_PERMITS = 256,
    RAMP_CALLS = 16,
    LEAST_REMEMBERED = 128,
    TIMEOUT_MS = 1000,
    PAUSE_MS = 5000,
    ROUNDS_TO_THE_END = 2000
};

typedef struct {
    bh_permit permit;
    int is_recorded;
    int64_t at; /* of the model's own clock, which never goes back */
} one_call;

typedef struct {
    const char *name;
    int happening;
    bh_breaker *breaker;
    breaker_draw *draw;
    void *source;
    int64_t now_ms;
    int64_t clock;
    int64_t last_number;
    one_call calls[MOST_PERMITS]; /* the last ones, in a ring */
    size_t count;
} model;

static bh_breaker_view read_view(model *self)
{
    bh_breaker_view view, again;
    bh_breaker_read(self->breaker, bh_str(""), self->now_ms, &view);
    bh_breaker_read(self->breaker, bh_str(""), self->now_ms, &again);
    CHECK(view.generation == again.generation && view.until_ms == again.until_ms && view.calls == again.calls);
    CHECK(view.failures >= 0 && view.failures <= view.calls && view.slow >= 0 && view.slow <= view.calls);
    CHECK(view.limit >= 0 && view.limit <= RAMP_CALLS);
    CHECK(memchr(view.reason, '\0', sizeof view.reason) != NULL);
    return view;
}

/* Counts the calls of the generation that run, and that are not older than the timeout. */
static int64_t running(const model *self, int64_t generation)
{
    int64_t count = 0;
    for (size_t i = 0; i < MOST_PERMITS && i < self->count; i++) {
        const one_call *call = &self->calls[i];
        count += call->permit.generation == generation && !call->is_recorded && self->clock - call->at < TIMEOUT_MS;
    }
    return count;
}

static void permit(model *self)
{
    bh_breaker_view before = read_view(self);
    bh_permit permit;
    bh_breaker_permit(self->breaker, bh_str(""), self->now_ms, &permit);
    bh_breaker_view after = read_view(self);
    CHECK(after.generation - before.generation <= 1);
    if (permit.generation == 0) {
        CHECK(after.state != BH_BREAKER_DISABLED);
        CHECK(permit.until_ms == BH_BREAKER_NEVER ? after.state == BH_BREAKER_OPEN : permit.until_ms >= self->now_ms);
        return;
    }
    CHECK(permit.generation == after.generation);
    CHECK(permit.number == self->last_number + 1);
    CHECK(after.state != BH_BREAKER_OPEN);
    if (after.state == BH_BREAKER_HALF_OPEN)
        CHECK(running(self, permit.generation) == 0); /* one probe at a time */
    if (before.state == BH_BREAKER_OPEN)
        CHECK(before.until_ms != BH_BREAKER_NEVER && before.until_ms <= self->now_ms);
    self->last_number = permit.number;
    self->calls[self->count++ % MOST_PERMITS] = (one_call){permit, 0, self->clock};
}

static void record(model *self, one_call *call, bh_call_kind kind)
{
    bh_breaker_view before = read_view(self);
    static const int64_t spans[] = {0, 1, 500, 20000, INT64_MAX, INT64_MIN};
    bh_call end = {.kind = kind, .error_class = bh_str("TimeoutError")};
    if (kind != BH_CALL_SUCCESS) {
        end.retry_after_ms = spans[self->draw(self->source, 6)];
        end.whole_queue = (int)self->draw(self->source, 2);
    }
    end.duration_ms = spans[self->draw(self->source, 3)];
    int counted = bh_breaker_record(self->breaker, bh_str(""), &call->permit, &end, self->now_ms);
    bh_breaker_view after = read_view(self);
    CHECK(after.generation - before.generation <= 1);
    if (call->permit.generation != before.generation || call->is_recorded)
        CHECK(!counted); /* no old generation, and no call twice */
    if (self->last_number - call->permit.number >= LEAST_REMEMBERED)
        CHECK(!counted);
    if (before.state == BH_BREAKER_CLOSED && call->permit.generation == before.generation && !call->is_recorded &&
        self->last_number - call->permit.number < LEAST_REMEMBERED)
        CHECK(counted);
    if (!counted && before.state != BH_BREAKER_HALF_OPEN)
        CHECK(after.generation == before.generation && after.calls == before.calls);
    call->is_recorded = 1;
}

static void move_clock(model *self)
{
    static const int64_t steps[] = {0, 0, 1, 7, 99, TIMEOUT_MS - 1, TIMEOUT_MS, PAUSE_MS, 61000, INT64_C(1) << 44};
    if (self->draw(self->source, 20) == 0) {
        self->now_ms = (int64_t)self->draw(self->source, 1000); /* back, or ahead at first */
        return;
    }
    int64_t step = steps[self->draw(self->source, 10)];
    if (self->now_ms + step >= INT64_C(1) << 53)
        return;
    self->now_ms += step;
    self->clock += step;
}

static void by_hand(model *self)
{
    switch (self->draw(self->source, 40)) {
    case 0:
        CHECK(bh_breaker_open(self->breaker, bh_str(""), BH_BREAKER_NEVER, self->now_ms) == BH_OK);
        CHECK(read_view(self).state == BH_BREAKER_OPEN);
        break;
    case 1:
        CHECK(bh_breaker_open(self->breaker, bh_str(""), self->now_ms + 3000, self->now_ms) == BH_OK);
        break;
    case 2:
        bh_breaker_disable(self->breaker, bh_str(""), self->now_ms);
        break;
    default:
        if (self->draw(self->source, 4) == 0)
            bh_breaker_close(self->breaker, bh_str(""), self->now_ms);
    }
}

static void happen(model *self)
{
    unsigned what = self->draw(self->source, 100);
    if (what < 45) {
        permit(self);
    } else if (what < 85 && self->count) {
        size_t kept = self->count < MOST_PERMITS ? self->count : MOST_PERMITS;
        static const bh_call_kind kinds[] = {BH_CALL_SUCCESS, BH_CALL_SUCCESS, BH_CALL_SUCCESS,  BH_CALL_FAILURE,
                                             BH_CALL_FAILURE, BH_CALL_IGNORED, BH_CALL_THROTTLED};
        size_t back =
            self->draw(self->source, 3) ? self->draw(self->source, 4) : self->draw(self->source, MOST_PERMITS);
        record(self, &self->calls[(self->count - 1 - back % kept) % MOST_PERMITS], kinds[self->draw(self->source, 7)]);
    } else if (what < 97) {
        move_clock(self);
    } else {
        by_hand(self);
    }
}

/* From any state, a downstream that answers gets all calls again. */
static void recover(model *self)
{
    bh_breaker_view view = read_view(self);
    if (view.state == BH_BREAKER_DISABLED || (view.state == BH_BREAKER_OPEN && view.until_ms == BH_BREAKER_NEVER))
        bh_breaker_close(self->breaker, bh_str(""), self->now_ms);
    for (int round = 0;; round++) {
        CHECK(round < ROUNDS_TO_THE_END);
        view = read_view(self);
        if (view.state == BH_BREAKER_CLOSED && view.limit == 0)
            return;
        bh_permit permit;
        bh_breaker_permit(self->breaker, bh_str(""), self->now_ms, &permit);
        if (permit.generation) {
            bh_call call = {.kind = BH_CALL_SUCCESS};
            CHECK(bh_breaker_record(self->breaker, bh_str(""), &permit, &call, self->now_ms));
        } else {
            CHECK(permit.until_ms != BH_BREAKER_NEVER);
            self->now_ms = permit.until_ms; /* trying at that time is enough */
        }
    }
}

void breaker_model_play(breaker_draw *draw, void *source, int happenings, const char *name)
{
    model state = {.name = name, .draw = draw, .source = source};
    model *self = &state;
    bh_breaker_settings settings;
    bh_breaker_defaults(&settings);
    settings.least_calls = 1 + draw(source, 20);
    settings.row_failures = draw(source, 6);
    settings.slow_ms = draw(source, 2) ? 100 : 0;
    settings.probe_successes = 1 + draw(source, 3);
    settings.probe_timeout_ms = TIMEOUT_MS;
    settings.ramp_calls = RAMP_CALLS;
    settings.throttled_opens = draw(source, 2);
    bh_policy *pauses = NULL;
    CHECK(bh_policy_new(&pauses) == BH_OK);
    CHECK(policy_set_max_ms(pauses, PAUSE_MS) == BH_OK);
    CHECK(policy_set_max_retry_after_ms(pauses, 30000) == BH_OK);
    settings.pauses = pauses;
    CHECK(bh_breaker_new(&self->breaker, &settings, (bh_bytes){"12345678", 8}) == BH_OK);
    bh_policy_free(pauses);
    for (self->happening = 0; self->happening < happenings; self->happening++)
        happen(self);
    recover(self);
    bh_breaker_free(self->breaker);
}
