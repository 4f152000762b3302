/* Silence: when a broker that does not answer counts as unavailable. */
#include <backhop/adapter/declaring.h>
#include <backhop/adapter/duration.h>
#include <backhop/adapter/silence.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST_TIMEOUT_MS = 3600000, MOST_STRIDE_MS = 1000, TEXT_ROOM = 256 };

struct bh_silence {
    int64_t timeout_ms;
    int64_t checked_ms; /* when the time was counted last */
    int64_t waited_ms;  /* that counts */
    int is_waiting;     /* a look began, and none was answered since */
    int is_silent;
    char text[TEXT_ROOM];
};

bh_status bh_silence_new(bh_silence **out, int64_t timeout_ms)
{
    if (!out)
        return BH_ERR_ARGUMENT;
    *out = NULL;
    if (timeout_ms < 1 || timeout_ms > MOST_TIMEOUT_MS)
        return BH_ERR_ARGUMENT;
    bh_silence *self = calloc(1, sizeof *self);
    if (!self)
        return BH_ERR_NO_MEMORY;
    self->timeout_ms = timeout_ms;
    *out = self;
    return BH_OK;
}

void bh_silence_free(bh_silence *self)
{
    free(self);
}

/* Returns how much of the time between two checks counts at most, in ms. */
static int64_t stride_ms(const bh_silence *self)
{
    int64_t half_ms = (self->timeout_ms + 1) / 2;
    return half_ms < MOST_STRIDE_MS ? half_ms : MOST_STRIDE_MS;
}

void bh_silence_begin(bh_silence *self, int64_t now_ms)
{
    if (!self || self->is_waiting)
        return;
    self->is_waiting = 1;
    self->waited_ms = 0;
    self->checked_ms = now_ms;
}

bh_event_kind bh_silence_check(bh_silence *self, int is_blocked, int64_t now_ms)
{
    if (!self || !self->is_waiting)
        return BH_EVENT_LAST;
    int64_t passed_ms = now_ms - self->checked_ms, most_ms = stride_ms(self);
    self->checked_ms = now_ms;
    self->waited_ms = is_blocked ? 0 : self->waited_ms + (passed_ms < most_ms ? passed_ms : most_ms);
    if (self->is_silent || self->waited_ms < self->timeout_ms)
        return BH_EVENT_LAST;
    char room[BH_DURATION_ROOM];
    self->is_silent = 1;
    snprintf(self->text, sizeof self->text,
             "the broker has not answered for %s: the network or the broker drops everything; use heartbeats, so that "
             "the client closes such a connection",
             bh_duration_text(self->timeout_ms, room).data);
    return BH_EVENT_UNAVAILABLE;
}

static int64_t due_ms(const bh_silence *self)
{
    if (!self->is_waiting || self->is_silent)
        return BH_SILENCE_NEVER;
    int64_t remaining_ms = self->timeout_ms - self->waited_ms, most_ms = stride_ms(self);
    return self->checked_ms + (remaining_ms < most_ms ? remaining_ms : most_ms);
}

bh_event_kind bh_silence_end(bh_silence *self, bh_status status)
{
    if (!self || status == BH_ERR_CONNECTION || status == BH_ERR_TIMEOUT)
        return BH_EVENT_LAST;
    int was_silent = self->is_silent;
    self->is_waiting = self->is_silent = 0;
    if (!was_silent)
        return BH_EVENT_LAST;
    snprintf(self->text, sizeof self->text, "the broker answers again");
    return BH_EVENT_CONNECTED;
}

void bh_silence_lost(bh_silence *self)
{
    if (self)
        self->is_waiting = self->is_silent = 0;
}

void bh_silence_read(const bh_silence *self, bh_silence_view *out)
{
    if (!out)
        return;
    *out = (bh_silence_view){.due_ms = BH_SILENCE_NEVER, .pause_ms = BH_LOOK_MS, .text = bh_str("")};
    if (!self)
        return;
    out->due_ms = due_ms(self);
    if (self->is_waiting && self->timeout_ms < BH_LOOK_MS)
        out->pause_ms = self->timeout_ms;
    out->is_silent = self->is_silent;
    out->text = bh_str(self->text);
}
