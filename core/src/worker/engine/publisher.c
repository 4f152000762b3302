#include "worker/engine/publisher.h"

#include "worker/engine/decision.h"
#include "worker/wire/content.h"

#include <stdio.h>

void bh__publisher_free(bh__publisher *self)
{
    bh__report_free(&self->problem);
}

int bh__publisher_is_open(const bh__publisher *self)
{
    for (size_t i = 0; i < BH__PUBLISH_CHANNELS; i++)
        if (!self->channels[i].ledger_publisher)
            return 0;
    return 1;
}

void bh__publisher_end(bh__publisher *self, bh__context *context, bh_ending ending)
{
    for (size_t i = 0; i < BH__PUBLISH_CHANNELS; i++) {
        bh__assembler_clear(&self->channels[i].returned);
        self->channels[i].ledger_publisher = 0;
    }
    if (ending != BH_ENDING_ORDERLY)
        bh__report_set(&self->problem, context->publish.link.problem.status, "%s",
                       bh__report_text(&context->publish.link.problem).data);
    bh_ledger_disconnect(context->ledger, ending, bh__monotonic_ms());
}

/* ------------------------------------------------------------------------- the broker's answers */

static void on_confirm(const bh__publisher *self, bh__context *context, size_t index, uint64_t tag, int multiple,
                       int is_ack)
{
    if (tag > INT64_MAX)
        return;
    context->publish.has_worked = 1;
    context->alive_ms = bh__monotonic_ms();
    bh_ledger_confirm(context->ledger, self->channels[index].ledger_publisher, (int64_t)tag, multiple, is_ack,
                      context->alive_ms);
}

/* Writes a reply as "312 NO_ROUTE". */
static bh_bytes write_reply(char out[BH__REPLY_TEXT], int code, amqp_bytes_t reply_text)
{
    bh_bytes text = bh__from_amqp(reply_text);
    snprintf(out, BH__REPLY_TEXT, "%d %.*s", code, (int)text.size, text.data);
    return bh_str(out);
}

static void on_return(bh__publisher *self, size_t index, const amqp_basic_return_t *method)
{
    write_reply(self->return_text, method->reply_code, method->reply_text);
    bh__assembler_begin(&self->channels[index].returned, 0, 0, method->exchange, method->routing_key);
}

static void on_returned_copy(const bh__publisher *self, bh__context *context, size_t index, const bh_message *copy)
{
    context->setup.is_declared &= context->settings->mode != BH_MODE_CREATE; /* declares missing parts again */
    bh_ledger_return(context->ledger, self->channels[index].ledger_publisher,
                     bh__content_string(copy->properties, "backhop-id"), copy->exchange, copy->routing_key);
}

static void emit_closed(const bh__context *context, const amqp_channel_close_t *close, int64_t copies)
{
    char cause[BH__REPLY_TEXT];
    bh__emit(context, (bh__event_data){.kind = BH_EVENT_UNAVAILABLE,
                                       .status = BH_ERR_CHANNEL,
                                       .cause = write_reply(cause, close->reply_code, close->reply_text),
                                       .count = copies,
                                       .connection = &context->publish});
}

/* Handles the end of a channel, which one of its copies in flight caused. */
static void on_publish_channel_close(bh__publisher *self, bh__context *context, size_t index,
                                     const amqp_channel_close_t *close)
{
    amqp_channel_t channel = (amqp_channel_t)(BH__FIRST_PUBLISH_CHANNEL + index);
    bh_status status =
        bh__link_answer_channel_close(&context->publish.link, channel, close, "publishing", &self->problem);
    int64_t copies = bh_ledger_copies(context->ledger);
    if (bh_ledger_close_publisher(context->ledger, self->channels[index].ledger_publisher,
                                  bh_ending_of(close->reply_code), bh__monotonic_ms()))
        emit_closed(context, close, copies);
    bh__assembler_clear(&self->channels[index].returned);
    self->channels[index].ledger_publisher = 0;
    if (status == BH_ERR_MISSING && context->settings->mode == BH_MODE_CREATE)
        context->setup.is_declared = 0;
}

static void on_publish_method(bh__publisher *self, bh__context *context, size_t index, const amqp_method_t *method)
{
    switch (method->id) {
    case AMQP_BASIC_ACK_METHOD: {
        const amqp_basic_ack_t *ack = method->decoded;
        on_confirm(self, context, index, ack->delivery_tag, ack->multiple, 1);
        break;
    }
    case AMQP_BASIC_NACK_METHOD: {
        const amqp_basic_nack_t *nack = method->decoded;
        on_confirm(self, context, index, nack->delivery_tag, nack->multiple, 0);
        break;
    }
    case AMQP_BASIC_RETURN_METHOD:
        on_return(self, index, method->decoded);
        break;
    case AMQP_CHANNEL_CLOSE_METHOD:
        on_publish_channel_close(self, context, index, method->decoded);
        break;
    default:
        break;
    }
}

void bh__publisher_on_frame(bh__publisher *self, bh__context *context, const bh__frame *frame,
                            const amqp_method_t *method)
{
    size_t index = (size_t)frame->channel - BH__FIRST_PUBLISH_CHANNEL;
    if (frame->channel < BH__FIRST_PUBLISH_CHANNEL || index >= BH__PUBLISH_CHANNELS ||
        !self->channels[index].ledger_publisher)
        return;
    if (method) {
        on_publish_method(self, context, index, method);
        return;
    }
    bh_message *copy;
    bh_status status = bh__assembler_add(&self->channels[index].returned, frame, &copy);
    if (status != BH_OK)
        bh__link_fail(&context->publish.link, status, "a returned copy could not be received");
    else if (copy)
        on_returned_copy(self, context, index, copy);
    bh_message_free(copy);
}

/* -------------------------------------------------------------------------------------- sending */

void bh__publisher_send(const bh__publisher *self, bh__context *context, int64_t ledger_publisher,
                        const bh_message *message)
{
    const bh__copy *copy = message->copy;
    amqp_basic_publish_t publish = {.exchange = bh__to_amqp(copy->exchange),
                                    .routing_key = bh__to_amqp(copy->routing_key),
                                    .mandatory = copy->mandatory};
    for (size_t i = 0; i < BH__PUBLISH_CHANNELS; i++)
        if (self->channels[i].ledger_publisher == ledger_publisher)
            bh__link_publish(&context->publish.link, (amqp_channel_t)(BH__FIRST_PUBLISH_CHANNEL + i), &publish,
                             copy->properties, message->body);
}

bh_bytes bh__publisher_explain(const bh__publisher *self, const bh__context *context, const bh_step *step,
                               const bh__copy *copy, bh_status *status)
{
    bh_ledger *ledger = context->ledger;
    *status = step->status;
    if (step->event == BH_EVENT_RETURNED && *status == BH_ERR_PUBLISH)
        return bh_ledger_text(ledger, copy->exchange, copy->routing_key, bh_str(self->return_text), bh_str(""));
    if (step->event == BH_EVENT_RETURNED)
        *status = self->problem.status; /* the reason of the channel's end: 404 or 403 */
    return bh_ledger_text(ledger, copy->exchange, copy->routing_key, bh__report_text(&self->problem), bh_str(""));
}
