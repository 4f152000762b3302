/* The changes of a breaker's state, and their reasons. */
#include "breaker/data.h"

#include <stdarg.h>
#include <stdio.h>

void bh__circuit_keep_class(bh__circuit *self, bh_bytes error_class)
{
    bh_bytes kept = bh__cut(error_class, BH__BREAKER_CLASS_BYTES);
    if (kept.size)
        memcpy(self->error_class, kept.data, kept.size);
    self->error_class_size = kept.size;
}

/* Copies untrusted text, with "?" for each byte that is malformed or controls a terminal. */
static size_t show(char *at, bh_bytes text)
{
    size_t size = 0;
    while (text.size) {
        size_t step = bh__character_size(text);
        if (step == 0 || bh__is_control(text.data, step)) {
            at[size++] = '?';
            step = step ? step : 1;
        } else {
            memcpy(at + size, text.data, step);
            size += step;
        }
        text.data += step;
        text.size -= step;
    }
    at[size] = '\0';
    return size;
}

void bh__circuit_explain(bh__circuit *self, int with_class, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int size = vsnprintf(self->reason, sizeof self->reason - BH__BREAKER_CLASS_BYTES - 3, format, arguments);
    va_end(arguments);
    if (size < 0 || !with_class || self->error_class_size == 0)
        return;
    size_t used = strlen(self->reason);
    self->reason[used++] = ':';
    self->reason[used++] = ' ';
    show(self->reason + used, (bh_bytes){self->error_class, self->error_class_size});
}

void bh__circuit_begin(bh__circuit *self, bh_breaker_state state)
{
    int limits = self->state == BH_BREAKER_OPEN || self->state == BH_BREAKER_HALF_OPEN;
    self->state = state;
    self->generation++;
    self->row = self->probe = self->successes = 0;
    if (state == BH_BREAKER_OPEN || state == BH_BREAKER_HALF_OPEN)
        return;
    self->floor = 0;
    self->error_class_size = 0;
    self->closed_at = self->clock;
    self->window = (bh__window){.number = 0};
    self->ramp = (bh__ramp){.from = self->number + 1, .active = self->clock};
    bh__ramp_step(&self->ramp, state == BH_BREAKER_CLOSED && limits ? 1 : 0, self->number);
}

void bh__circuit_forget_pauses(bh__circuit *self)
{
    if (self->state == BH_BREAKER_CLOSED && self->clock - self->closed_at >= self->settings.window_ms)
        self->pauses_made = self->pause_ms = 0;
}

void bh__circuit_pause(bh__circuit *self)
{
    bh__circuit_forget_pauses(self);
    self->pauses_made++;
    self->pause_ms =
        bh_policy_delay_ms(self->pauses, self->pauses_made, self->pause_ms, bh__draw_number(&self->random));
    self->until = self->clock + self->pause_ms;
    if (self->until < self->floor)
        self->until = self->floor;
    bh__circuit_begin(self, BH_BREAKER_OPEN);
}
