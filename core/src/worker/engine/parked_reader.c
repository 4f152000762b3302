#include "worker/engine/parked_reader.h"

void bh__parked_reader_free(bh__parked_reader *self)
{
    bh__assembler_clear(&self->assembler);
    bh__report_free(&self->problem);
}

bh_status bh__parked_reader_opened(bh__parked_reader *self, bh__context *context)
{
    bh_status status = bh_ledger_open_channel(context->ledger, &self->ledger_channel);
    self->is_open = status == BH_OK;
    self->entry = 0;
    return status;
}

void bh__parked_reader_end(bh__parked_reader *self, bh__context *context)
{
    bh__assembler_clear(&self->assembler);
    if (self->is_open)
        bh__release_channel(context, self->ledger_channel);
    self->is_open = 0;
    self->ledger_channel = self->entry = 0;
    context->skipped_count = 0;
}

static void on_parked_message(bh__parked_reader *self, bh__context *context, bh_message *message)
{
    message->channel = self->ledger_channel;
    bh_status status =
        bh_ledger_arrive(context->ledger, self->ledger_channel, (int64_t)message->delivery_tag, &message->entry);
    if (status == BH_OK && !bh__add_in_hand(context, message))
        status = BH_ERR_NO_MEMORY;
    if (status != BH_OK) {
        bh_message_free(message);
        bh__link_fail(&context->consume.link, status, "no memory for a parked message");
        return;
    }
    self->entry = message->entry;
    self->result = BH__REPLAY_PENDING;
}

void bh__parked_reader_on_frame(bh__parked_reader *self, bh__context *context, const bh__frame *frame,
                                const amqp_method_t *method)
{
    if (!self->is_open)
        return; /* frames of a channel that is closed */
    if (method && method->id == AMQP_BASIC_GET_OK_METHOD) {
        const amqp_basic_get_ok_t *got = method->decoded;
        bh__assembler_begin(&self->assembler, got->delivery_tag, got->redelivered != 0, got->exchange,
                            got->routing_key);
    } else if (method && method->id == AMQP_CHANNEL_CLOSE_METHOD) {
        bh__link_answer_channel_close(&context->consume.link, BH__CHANNEL_GET, method->decoded, "replaying",
                                      &self->problem);
        bh__parked_reader_end(self, context);
    } else if (!method) {
        bh_message *message;
        bh_status status = bh__assembler_add(&self->assembler, frame, &message);
        if (status != BH_OK)
            bh__link_fail(&context->consume.link, status, "a parked message could not be received");
        else if (message)
            on_parked_message(self, context, message);
    }
}
