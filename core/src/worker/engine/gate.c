#include "worker/engine/gate.h"

#include "worker/engine/decision.h"

bh_status bh__gate_begin(bh__gate *self, const bh__settings *settings)
{
    bh__gate_free(self);
    return settings->breaker ? bh_flow_new(&self->flow, settings->breaker, settings->topology) : BH_OK;
}

void bh__gate_free(bh__gate *self)
{
    bh_flow_free(self->flow);
    *self = (bh__gate){.due_ms = INT64_MAX};
}

int64_t bh__gate_due_ms(const bh__gate *self)
{
    return self->flow ? self->due_ms : INT64_MAX;
}

/* Defers all messages that no caller took. */
static void defer_held(bh__consumer *consumer, bh__context *context, int64_t delay_ms)
{
    bh__message_list held = {.first = NULL};
    bh__mailbox_withdraw(context->mailbox, &held);
    bh__message_list_append(&held, &consumer->arrived);
    for (bh_message *message; (message = bh__message_list_pop(&held)); bh_message_free(message)) {
        atomic_store(&message->settling, BH__SETTLED);
        message->outcome = BH_OUTCOME_DEFERRED;
        message->retry_after_ms = delay_ms;
        bh__decide(context, message);
    }
}

/* Executes a step. Returns 0 if no other step is due. */
static int execute(bh__gate *self, const bh_flow_step *step, bh__consumer *consumer, bh__context *context)
{
    switch (step->kind) {
    case BH_FLOW_EMIT:
        bh__emit(context, (bh__event_data){.kind = step->event, .flow = self->flow});
        return 1;
    case BH_FLOW_CANCEL:
        bh__consumer_cancel(consumer, context);
        return 1;
    case BH_FLOW_DEFER:
        defer_held(consumer, context, step->delay_ms);
        return 1;
    case BH_FLOW_CONSUME: /* bh__prepare consumes, as the flow is not cancelled any more */
        return 1;
    case BH_FLOW_CALL:
        bh__mailbox_resume(context->mailbox);
        return 0;
    case BH_FLOW_REST:
        break;
    }
    return 0;
}

void bh__gate_update(bh__gate *self, bh__consumer *consumer, bh__context *context)
{
    bh_flow_step step;
    if (!self->flow)
        return;
    do
        bh_flow_next(self->flow, bh__consumer_count_untaken(consumer, context), bh__monotonic_ms(), &step);
    while (execute(self, &step, consumer, context));
    self->is_limiting = step.is_limiting;
    self->due_ms = step.due_ms;
}
