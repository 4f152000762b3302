/* Rounds: what the thread does again and again, also during a replay. */
#include "worker/procedures/runner.h"

void bh__runner_keep_up(bh__runner *self)
{
    bh__reconnect_publisher(self);
    bh__prepare(self);
}

void bh__runner_pump(bh__runner *self, unsigned before, int64_t until_ms)
{
    int has_changed = bh__engine_state(&self->engine) != before;
    int64_t due_ms = bh__earlier(bh__reconnect_due_ms(self), bh__prepare_due_ms(self));
    bh__engine_pump(&self->engine, has_changed ? bh__monotonic_ms() : bh__earlier(due_ms, until_ms));
}

void bh__runner_keep_going(bh__runner *self, int64_t until_ms)
{
    unsigned before = bh__engine_state(&self->engine);
    bh__runner_keep_up(self);
    bh__runner_pump(self, before, until_ms);
}
