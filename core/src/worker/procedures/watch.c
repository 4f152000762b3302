#include "worker/procedures/runner.h"

#include "plan/internal.h"
#include "topology/internal.h"
#include "worker/engine/pacing.h"

/* Emits what a look found. */
static void emit_missing(bh__runner *self, bh_bytes exchange)
{
    bh__context *context = self->context;
    int is_mended = context->settings->mode == BH_MODE_CREATE;
    bh__report text = {.size = 0};
    bh__report_set(&text, BH_ERR_MISSING, "the exchange \"%.*s\" is missing, so that no retry comes back; %s",
                   (int)exchange.size, exchange.data,
                   is_mended ? "it is declared again"
                             : "declare it again, with its bindings (backhop topology prints them)");
    bh__emit(context, (bh__event_data){.kind = BH_EVENT_UNAVAILABLE,
                                       .status = BH_ERR_MISSING,
                                       .text = bh__report_text(&text),
                                       .connection = &context->consume});
    bh__report_free(&text);
}

/* Looks for the exchange that retries come back by. Binds the work queue to it again: an exchange that
 * another worker declared again has lost the bindings of this one. */
static bh_status check_return_path(bh__runner *self)
{
    bh__context *context = self->context;
    const bh_topology *topology = context->settings->topology;
    bh_bytes exchange = bh__topology_return_exchange(topology);
    if (exchange.size == 0)
        return BH_OK;
    bh_status status = bh__find_exchange(self, exchange);
    if (status == BH_ERR_MISSING) {
        emit_missing(self, exchange);
        self->reread_ms = 0; /* some retries may have missed it */
        if (context->settings->mode == BH_MODE_CREATE)
            context->setup.is_declared = 0; /* bh__prepare declares everything */
        return BH_OK;
    }
    return status == BH_OK && context->settings->mode == BH_MODE_CREATE ? bh__bind_again(self) : status;
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
    return self->watched_ms + BH__WATCH_MS;
}

void bh__watch(bh__runner *self)
{
    if (bh__monotonic_ms() < bh__watch_due_ms(self))
        return;
    self->watched_ms = bh__monotonic_ms();
    if (check_return_path(self) == BH_OK && self->context->setup.is_declared && bh__monotonic_ms() >= self->reread_ms)
        self->reread_ms = bh__monotonic_ms() + bh__replay_pause_ms(bh__replay_own_unroutable(self));
    give_up_silent_node(self->context);
}
