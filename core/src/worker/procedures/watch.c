#include "worker/procedures/runner.h"

#include <backhop/adapter/replay.h>

/* Looks for the exchange that retries come back by. Emits if it was missing. */
static bh_status check_return_path(bh__runner *self)
{
    bh_status status = bh__check_topology(self);
    if (status == BH_OK || status == BH_ERR_CONNECTION || status == BH_ERR_NO_MEMORY)
        return status;
    bh__emit(self->context,
             (bh__event_data){.kind = BH_EVENT_UNAVAILABLE, .status = status, .text = bh__report_text(&self->problem)});
    self->reread_ms = 0; /* some retries may have missed it */
    return status;
}

/* Gives up the publish connection too if the broker did not answer: it leads to the same node. */
static void give_up_silent_node(bh__context *context)
{
    const bh__link *consume = &context->consume.link;
    if (bh__link_is_broken(consume) && !consume->is_cut && !consume->close_code)
        bh__link_fail(&context->publish.link, BH_ERR_CONNECTION, "%s", bh__report_text(&consume->problem).data);
}

int64_t bh__watch_due_ms(const bh__runner *self)
{
    const bh__context *context = self->context;
    if (!context->setup.is_ready || self->engine.stage != BH__WORKING || context->settings->relay ||
        context->settings->mode == BH_MODE_NONE)
        return INT64_MAX;
    return self->watched_ms + BH_LOOK_MS;
}

void bh__watch(bh__runner *self)
{
    if (bh__monotonic_ms() < bh__watch_due_ms(self))
        return;
    self->watched_ms = bh__monotonic_ms();
    if (bh_replay_after_look((bh_mode)self->context->settings->mode, check_return_path(self)) &&
        self->context->setup.is_declared && bh__monotonic_ms() >= self->reread_ms)
        self->reread_ms = bh__monotonic_ms() + bh_replay_pause_ms(bh__replay_own_unroutable(self));
    give_up_silent_node(self->context);
}
