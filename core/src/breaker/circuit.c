/* Circuit: permits, records, and the changes by hand. */
#include "breaker/data.h"

#include <backhop/adapter/duration.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

/* The longest step of the clock, 35 years: so no sequence of jumps overflows it in practice. */
#define LONGEST_STEP_MS (INT64_C(1) << 40)
#define REMEMBERED_PER_CALL 8
#define LEAST_REMEMBERED 64

/* Returns a time span as text. Up to two minutes it is in seconds: "60 s". */
static const char *span_text(int64_t span_ms, char room[BH_DURATION_ROOM])
{
    if (span_ms > 120000 || span_ms % 1000)
        return bh_duration_text(span_ms, room).data;
    snprintf(room, BH_DURATION_ROOM, "%lld s", (long long)(span_ms / 1000));
    return room;
}

/* --------------------------------------------------------------------------------- new and free */

/* Makes the default pauses: 10 s, doubled up to 5 min, spread 0.2. */
static bh_status make_pauses(bh_policy **out)
{
    bh_policy_settings settings;
    bh_policy_defaults(&settings);
    settings.initial_ms = 10000;
    settings.max_ms = 300000;
    settings.max_retry_after_ms = 3600000;
    bh_status status = bh_policy_new(out);
    return status == BH_OK ? bh_policy_set(*out, &settings) : status;
}

static bh_status fill(bh__circuit *self, const bh_breaker_settings *settings)
{
    self->settings = *settings;
    self->remembered = LEAST_REMEMBERED;
    while (self->remembered < settings->ramp_calls * REMEMBERED_PER_CALL)
        self->remembered *= 2;
    self->recorded = calloc((size_t)self->remembered / 64, sizeof *self->recorded);
    if (!self->recorded)
        return BH_ERR_NO_MEMORY;
    return settings->pauses ? bh__policy_copy(&self->pauses, settings->pauses) : make_pauses(&self->pauses);
}

bh_status bh__circuit_new(bh__circuit **out, const bh_breaker_settings *settings, bh_bytes random)
{
    *out = NULL;
    bh__circuit *self = calloc(1, sizeof *self);
    if (!self || pthread_mutex_init(&self->mutex, NULL) != 0) {
        free(self);
        return BH_ERR_NO_MEMORY;
    }
    bh_status status = fill(self, settings);
    if (status != BH_OK) {
        bh__circuit_free(self);
        return status;
    }
    self->settings.pauses = NULL; /* the caller's, which may go */
    memcpy(self->name, settings->name.data, settings->name.size);
    self->settings.name = (bh_bytes){self->name, settings->name.size};
    self->random = bh__seed(random.data);
    self->seen_ms = -1;
    self->generation = 1;
    *out = self;
    return BH_OK;
}

void bh__circuit_free(bh__circuit *self)
{
    if (!self)
        return;
    pthread_mutex_destroy(&self->mutex);
    bh_policy_free(self->pauses);
    free(self->recorded);
    free(self);
}

static void lock(bh__circuit *self)
{
    pthread_mutex_lock(&self->mutex);
}

static void unlock(bh__circuit *self)
{
    pthread_mutex_unlock(&self->mutex);
}

/* --------------------------------------------------------------------------------------- clock */

static int64_t in_range(int64_t now_ms)
{
    return now_ms < 0 ? 0 : now_ms > BH__BREAKER_MOST_MS ? BH__BREAKER_MOST_MS : now_ms;
}

/* Moves the breaker's clock to the caller's. If that went back, continues from there. */
static void advance(bh__circuit *self, int64_t now_ms)
{
    now_ms = in_range(now_ms);
    int64_t step = self->seen_ms < 0 ? 0 : now_ms - self->seen_ms;
    if (step > 0)
        self->clock += step < LONGEST_STEP_MS ? step : LONGEST_STEP_MS;
    self->seen_ms = now_ms;
}

/* Converts a time of the breaker's clock to the caller's clock. */
static int64_t outside(const bh__circuit *self, int64_t time)
{
    return time == BH_BREAKER_NEVER ? BH_BREAKER_NEVER : in_range(self->seen_ms + time - self->clock);
}

/* ------------------------------------------------------------------------------------- permits */

static uint64_t *word_of(bh__circuit *self, int64_t number)
{
    return &self->recorded[(number & (self->remembered - 1)) / 64];
}

static uint64_t bit_of(int64_t number)
{
    return UINT64_C(1) << (number & 63);
}

static void grant(bh__circuit *self, bh_permit *out)
{
    self->number++;
    *word_of(self, self->number) &= ~bit_of(self->number);
    out->generation = self->generation;
    out->number = self->number;
}

/* Reopens the breaker if its probe was lost. Returns 1 if it did. */
static int lost_probe(bh__circuit *self)
{
    if (self->state != BH_BREAKER_HALF_OPEN || !self->probe || self->clock < self->probe_end)
        return 0;
    char room[BH_DURATION_ROOM];
    bh__circuit_explain(self, 0, "a probe was not recorded within %s",
                        span_text(self->settings.probe_timeout_ms, room));
    bh__circuit_pause(self);
    return 1;
}

/* Takes a place in the ramp. Returns 0 if there is none. */
static int take_place(bh__circuit *self)
{
    bh__ramp *ramp = &self->ramp;
    if (ramp->calls >= ramp->limit) {
        if (self->clock - ramp->active < self->settings.probe_timeout_ms)
            return 0;
        ramp->calls = 0; /* they are lost; their records count, but give no place back */
        ramp->from = self->number + 1;
        bh__ramp_step(ramp, ramp->limit > 1 ? ramp->limit / 2 : 1, self->number);
    }
    ramp->calls++;
    ramp->active = self->clock;
    return 1;
}

static void half_open(bh__circuit *self)
{
    bh__circuit_explain(self, 0, "the pause is over");
    bh__circuit_begin(self, BH_BREAKER_HALF_OPEN);
}

/* Returns until when no permit is granted, by the breaker's clock. */
static int64_t refused_until(bh__circuit *self)
{
    if (self->state == BH_BREAKER_CLOSED)
        return self->ramp.active + self->settings.probe_timeout_ms;
    return self->state == BH_BREAKER_OPEN ? self->until : self->probe_end;
}

/* Grants a permit in *out. Returns 0 if there is none now. */
static int try_to_grant(bh__circuit *self, bh_permit *out)
{
    lost_probe(self);
    if (self->state == BH_BREAKER_OPEN && self->until != BH_BREAKER_NEVER && self->clock >= self->until)
        half_open(self);
    if (self->state == BH_BREAKER_OPEN || (self->state == BH_BREAKER_HALF_OPEN && self->probe) ||
        (self->state == BH_BREAKER_CLOSED && self->ramp.limit && !take_place(self)))
        return 0;
    grant(self, out);
    if (self->state == BH_BREAKER_HALF_OPEN) {
        self->probe = self->number;
        self->probe_end = self->clock + self->settings.probe_timeout_ms;
    }
    return 1;
}

void bh__circuit_permit(bh__circuit *self, int64_t now_ms, bh_permit *out)
{
    *out = (bh_permit){.until_ms = BH_BREAKER_NEVER};
    lock(self);
    advance(self, now_ms);
    if (!try_to_grant(self, out))
        out->until_ms = outside(self, refused_until(self));
    unlock(self);
}

/* ------------------------------------------------------------------------------------- records */

static int is_slow(const bh__circuit *self, const bh_call *call)
{
    return self->settings.slow_ms && call->duration_ms > self->settings.slow_ms;
}

/* Returns the pause that the downstream requests, at most max_retry_after_ms; 0: none. */
static int64_t requested_ms(const bh__circuit *self, const bh_call *call)
{
    int64_t most = bh__policy_max_retry_after_ms(self->pauses);
    return call->retry_after_ms < 0 ? 0 : call->retry_after_ms < most ? call->retry_after_ms : most;
}

static void note_floor(bh__circuit *self, const bh_call *call)
{
    int64_t floor = self->clock + requested_ms(self, call);
    if (floor > self->floor)
        self->floor = floor;
}

static void open_throttled(bh__circuit *self, const bh_call *call)
{
    char room[BH_DURATION_ROOM];
    note_floor(self, call);
    bh__circuit_keep_class(self, call->error_class);
    if (requested_ms(self, call))
        bh__circuit_explain(self, 1, "throttled for %s", span_text(requested_ms(self, call), room));
    else
        bh__circuit_explain(self, 1, "throttled");
    bh__circuit_pause(self);
}

static void record_probe(bh__circuit *self, const bh_call *call)
{
    char room[BH_DURATION_ROOM];
    self->probe = 0;
    if (call->kind == BH_CALL_IGNORED)
        return;
    if (call->kind == BH_CALL_THROTTLED) {
        open_throttled(self, call);
    } else if (call->kind == BH_CALL_FAILURE) {
        note_floor(self, call);
        bh__circuit_keep_class(self, call->error_class);
        bh__circuit_explain(self, 1, "a probe failed");
        bh__circuit_pause(self);
    } else if (is_slow(self, call)) {
        bh__circuit_explain(self, 0, "a probe took longer than %s", span_text(self->settings.slow_ms, room));
        bh__circuit_pause(self);
    } else if (++self->successes >= self->settings.probe_successes) {
        if (self->successes == 1)
            bh__circuit_explain(self, 0, "a probe succeeded");
        else
            bh__circuit_explain(self, 0, "%lld probes succeeded in a row", (long long)self->successes);
        bh__circuit_begin(self, BH_BREAKER_CLOSED);
    }
}

/* Counts the failures in a row. */
static void count_row(bh__circuit *self, int64_t permit, int failed)
{
    if (!failed) {
        self->row = 0;
        self->floor = 0;
    } else if (self->row == 0) {
        self->row = 1;
        self->row_from = self->number + 1;
    } else if (permit >= self->row_from) {
        self->row++;
    }
}

/* Opens the breaker if the calls give a reason. Returns 1 if it did. */
static int open_if_bad(bh__circuit *self)
{
    const bh_breaker_settings *settings = &self->settings;
    const bh__bucket *sum = &self->window.sum;
    int is_enough = sum->calls >= settings->least_calls;
    char room[BH_DURATION_ROOM], slow_room[BH_DURATION_ROOM];
    if (settings->row_failures && self->row >= settings->row_failures) {
        if (self->row == 1)
            bh__circuit_explain(self, 1, "1 call failed");
        else
            bh__circuit_explain(self, 1, "%lld failed in a row", (long long)self->row);
    } else if (is_enough && sum->failures * 100 >= settings->failure_percent * sum->calls) {
        bh__circuit_explain(self, 1, "%lld of %lld failed in %s", (long long)sum->failures, (long long)sum->calls,
                            span_text(settings->window_ms, room));
    } else if (is_enough && settings->slow_ms && sum->slow * 100 >= settings->slow_percent * sum->calls) {
        bh__circuit_explain(self, 0, "%lld of %lld took longer than %s in %s", (long long)sum->slow,
                            (long long)sum->calls, span_text(settings->slow_ms, slow_room),
                            span_text(settings->window_ms, room));
    } else {
        return 0;
    }
    bh__circuit_pause(self);
    return 1;
}

static void record_closed(bh__circuit *self, int64_t permit, const bh_call *call)
{
    int failed = call->kind == BH_CALL_FAILURE;
    int slow = is_slow(self, call);
    if (self->ramp.limit && permit >= self->ramp.from) {
        self->ramp.calls--;
        self->ramp.active = self->clock;
    }
    if (call->kind == BH_CALL_THROTTLED && (call->whole_queue || self->settings.throttled_opens)) {
        open_throttled(self, call);
        return;
    }
    if (failed || call->kind == BH_CALL_SUCCESS) {
        if (failed) {
            note_floor(self, call);
            bh__circuit_keep_class(self, call->error_class);
        }
        bh__window_move(&self->window, self->clock, self->settings.window_ms);
        bh__window_count(&self->window, failed, slow);
        count_row(self, permit, failed);
        if (open_if_bad(self))
            return;
    }
    if (self->ramp.limit && call->kind != BH_CALL_IGNORED)
        bh__ramp_count(&self->ramp, &self->settings, permit, self->number,
                       failed || slow || call->kind == BH_CALL_THROTTLED);
}

/* Returns 1 if the permit is of this generation and was not recorded before, and marks it as
 * recorded. */
static int mark_recorded(bh__circuit *self, const bh_permit *permit)
{
    int64_t number = permit->number;
    if (permit->generation != self->generation || number < 1 || number > self->number ||
        self->number - number >= self->remembered || *word_of(self, number) & bit_of(number))
        return 0;
    *word_of(self, number) |= bit_of(number);
    return 1;
}

/* Returns 1 if the call counted. */
static int record(bh__circuit *self, int64_t number, const bh_call *call)
{
    if (self->state == BH_BREAKER_CLOSED)
        record_closed(self, number, call);
    else if (self->state == BH_BREAKER_HALF_OPEN && number == self->probe)
        record_probe(self, call);
    else
        return 0;
    return 1;
}

int bh__circuit_record(bh__circuit *self, const bh_permit *permit, const bh_call *call, int64_t now_ms)
{
    lock(self);
    advance(self, now_ms);
    lost_probe(self);
    int counted = mark_recorded(self, permit) && record(self, permit->number, call);
    unlock(self);
    return counted;
}

/* ------------------------------------------------------------------------------------- by hand */

void bh__circuit_open(bh__circuit *self, int64_t until_ms, int64_t now_ms)
{
    lock(self);
    advance(self, now_ms);
    bh__circuit_forget_pauses(self);
    self->until = until_ms;
    if (until_ms != BH_BREAKER_NEVER)
        self->until = self->clock + (until_ms > self->seen_ms ? until_ms - self->seen_ms : 0);
    bh__circuit_explain(self, 0, "opened by hand");
    bh__circuit_begin(self, BH_BREAKER_OPEN);
    unlock(self);
}

void bh__circuit_close(bh__circuit *self, int64_t now_ms)
{
    lock(self);
    advance(self, now_ms);
    self->pauses_made = self->pause_ms = 0;
    bh__circuit_explain(self, 0, "closed by hand");
    bh__circuit_begin(self, BH_BREAKER_CLOSED);
    unlock(self);
}

void bh__circuit_disable(bh__circuit *self, int64_t now_ms)
{
    lock(self);
    advance(self, now_ms);
    bh__circuit_forget_pauses(self);
    bh__circuit_explain(self, 0, "disabled by hand");
    bh__circuit_begin(self, BH_BREAKER_DISABLED);
    unlock(self);
}

/* --------------------------------------------------------------------------------------- state */

/* Returns 1 if a permit would be granted at the breaker's clock. */
static int would_grant(const bh__circuit *self)
{
    switch (self->state) {
    case BH_BREAKER_CLOSED:
        return !self->ramp.limit || self->ramp.calls < self->ramp.limit ||
               self->clock - self->ramp.active >= self->settings.probe_timeout_ms;
    case BH_BREAKER_OPEN:
        return self->until != BH_BREAKER_NEVER && self->clock >= self->until;
    case BH_BREAKER_HALF_OPEN:
        return !self->probe;
    case BH_BREAKER_DISABLED:
        break;
    }
    return 1;
}

/* Returns when the state changes by time alone, by the breaker's clock. */
static int64_t until(const bh__circuit *self)
{
    if (self->state == BH_BREAKER_OPEN)
        return self->until;
    return self->state == BH_BREAKER_HALF_OPEN && self->probe ? self->probe_end : BH_BREAKER_NEVER;
}

static int64_t limit_of(const bh__circuit *self)
{
    if (self->state == BH_BREAKER_HALF_OPEN)
        return 1;
    return self->state == BH_BREAKER_CLOSED ? self->ramp.limit : 0;
}

void bh__circuit_read(bh__circuit *self, int64_t now_ms, bh_breaker_view *out)
{
    *out = (bh_breaker_view){.until_ms = BH_BREAKER_NEVER};
    bh__circuit now;
    lock(self);
    memcpy(&now.settings, &self->settings,
           sizeof now - offsetof(bh__circuit, settings)); /* all that the mutex guards */
    unlock(self);
    advance(&now, now_ms);
    bh__window_move(&now.window, now.clock, now.settings.window_ms);
    out->state = now.state;
    out->generation = now.generation;
    out->until_ms = outside(&now, until(&now));
    out->limit = limit_of(&now);
    int is_over = now.state == BH_BREAKER_CLOSED && now.clock - now.closed_at >= now.settings.window_ms;
    out->pauses = is_over ? 0 : now.pauses_made;
    out->calls = now.window.sum.calls;
    out->failures = now.window.sum.failures;
    out->slow = now.window.sum.slow;
    out->grants = would_grant(&now);
    memcpy(out->reason, now.reason, sizeof out->reason);
}
