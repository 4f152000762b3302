#include "engine/consumer.h"

#include "engine/decision.h"

#include <stdio.h>

bh_status bh__consumer_opened(bh__consumer *self, bh__context *context)
{
    bh_status status = bh_ledger_open_channel(context->ledger, &self->number);
    self->is_open = status == BH_OK;
    self->next_tag = 1;
    return status;
}

int64_t bh__consumer_end(bh__consumer *self, bh__context *context)
{
    bh__queue untaken = {.first = NULL};
    bh__mailbox_withdraw(context->mailbox, &untaken);
    bh__queue_clear(&untaken);
    bh__queue_clear(&self->arrived);
    bh__assembler_clear(&self->assembler);
    int64_t count = self->is_open ? bh__release_channel(context, self->number) : 0;
    self->number = 0;
    self->is_open = self->is_consuming = self->is_doubtful = 0;
    context->is_ready = 0;
    return count;
}

void bh__consumer_tell_cancelled(bh__consumer *self, bh__context *context, bh_status status, const char *reason,
                                 int64_t count)
{
    char text[900];
    snprintf(text, sizeof text, "the consumer of \"%s\" has ended: %s",
             bh_topology_queue(context->settings->topology).data, reason);
    self->is_consuming = 0;
    context->is_ready = 0;
    context->is_declared = 0; /* the queue may be gone, and what was bound to it */
    bh__note_failure(context, &context->setup);
    bh__tell(context, (bh__news){.kind = BH_EVENT_CANCELLED,
                                 .status = status,
                                 .text = bh_str(text),
                                 .count = count,
                                 .connection = &context->consume});
}

/* ------------------------------------------------------------------------------------------------------------ methods */

/* From 4.3 on it can mean a message that was held too long: the broker has that one again, and ignores its
 * acknowledgement. What it meant is asked afterwards. */
static void on_cancel(bh__consumer *self, bh__context *context, const amqp_basic_cancel_t *cancel)
{
    if (!self->is_consuming || !bh__same(bh__from_amqp(cancel->consumer_tag), bh_str(self->tag)))
        return;
    self->is_doubtful = bh__is_at_least_4_3(context);
    bh__consumer_tell_cancelled(self, context, BH_ERR_CANCELLED,
                                self->is_doubtful ? "the queue was deleted or is not available, or a message was held "
                                                    "longer than the broker's consumer timeout"
                                                  : "the queue was deleted, or is not available",
                                0);
}

static void on_consume_channel_close(bh__consumer *self, bh__context *context, const amqp_channel_close_t *close)
{
    bh__report words = {.size = 0};
    bh__link_answer_channel_close(&context->consume.link, self->channel, close, "consuming", &words);
    int64_t count = bh__consumer_end(self, context);
    bh__consumer_tell_cancelled(self, context, BH_ERR_CHANNEL, bh__report_text(&words).data, count);
    bh__report_free(&words);
}

static void on_consume_method(bh__consumer *self, bh__context *context, const amqp_method_t *method)
{
    switch (method->id) {
    case AMQP_BASIC_DELIVER_METHOD: {
        const amqp_basic_deliver_t *deliver = method->decoded;
        bh__assembler_begin(&self->assembler, deliver->delivery_tag, deliver->redelivered != 0, deliver->exchange,
                            deliver->routing_key);
        break;
    }
    case AMQP_BASIC_CANCEL_METHOD:
        on_cancel(self, context, method->decoded);
        break;
    case AMQP_CHANNEL_CLOSE_METHOD:
        on_consume_channel_close(self, context, method->decoded);
        break;
    default:
        break;
    }
}

/* --------------------------------------------------------------------------------------------------------- deliveries */

/* Enters the delivery in the ledger. */
static bh_status take_in(const bh__consumer *self, bh__context *context, bh_message *message)
{
    message->worker = context->worker;
    message->channel = self->number;
    bh_status status = bh_ledger_arrive(context->ledger, self->number, (int64_t)message->delivery_tag, &message->entry);
    return status == BH_OK && !bh__hold(context, message) ? BH_ERR_NO_MEMORY : status;
}

static void note_guarded(bh__context *context, bh_message *message)
{
    if (context->guarded_count++ == 0)
        context->guarded_ms = bh__monotonic_ms();
    message->is_guarded = 1;
}

static void on_delivery(bh__consumer *self, bh__context *context, bh_message *message)
{
    bh__link *link = &context->consume.link;
    int is_next = message->delivery_tag == self->next_tag++;
    bh_status status = is_next ? take_in(self, context, message) : BH_ERR_CONNECTION;
    if (status != BH_OK) {
        bh_message_free(message);
        bh__link_fail(link, status, "%s", is_next ? "no memory for a delivery" : "a delivery came out of order");
        return;
    }
    context->consume.has_worked = 1;
    context->setup.failures = 0;
    context->heard_ms = bh__monotonic_ms();
    if (message->redelivered && !context->settings->relay && bh__guard(context, message)) {
        atomic_store(&message->settling, BH__SETTLED);
        note_guarded(context, message);
        return;
    }
    bh__message_keep(message); /* for who takes it */
    bh__queue_push(&self->arrived, message);
}

void bh__consumer_on_frame(bh__consumer *self, bh__context *context, const bh__frame *frame,
                           const amqp_method_t *method)
{
    if (!self->is_open || frame->channel != self->channel)
        return; /* the last words of a channel that is gone */
    if (method) {
        on_consume_method(self, context, method);
        return;
    }
    bh_message *message;
    bh_status status = bh__assembler_add(&self->assembler, frame, &message);
    if (status != BH_OK)
        bh__link_fail(&context->consume.link, status, "a message could not be received (%s)",
                      status == BH_ERR_NO_MEMORY ? "no memory" : "its frames are out of order");
    else if (message)
        on_delivery(self, context, message);
}

/* ---------------------------------------------------------------------------------------------- left, and given back */

void bh__consumer_look_at_left(bh__consumer *self, bh__context *context)
{
    amqp_basic_cancel_t cancel = {.consumer_tag = amqp_cstring_bytes(self->tag), .nowait = 1};
    if (!self->is_consuming || context->left_count - self->left_before < context->settings->prefetch)
        return;
    bh__link_send(&context->consume.link, self->channel, AMQP_BASIC_CANCEL_METHOD, &cancel);
    self->is_consuming = 0;
}

void bh__consumer_give_back_ready(bh__consumer *self, bh__context *context)
{
    bh__queue untaken = {.first = NULL};
    bh__queue_append(&untaken, &self->arrived);
    bh__mailbox_withdraw(context->mailbox, &untaken);
    for (bh_message *message; (message = bh__queue_pop(&untaken));) {
        bh_ledger_give_back(context->ledger, message->entry);
        bh_message_free(message);
    }
}

void bh__consumer_give_back_all(const bh__consumer *self, bh__context *context)
{
    if (!self->is_open)
        return;
    amqp_basic_nack_t nack = {
        .delivery_tag = 0, .multiple = 1, .requeue = 1}; /* all that there are; none is no error */
    bh__link_send(&context->consume.link, self->channel, AMQP_BASIC_NACK_METHOD, &nack);
}
