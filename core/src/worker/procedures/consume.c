#include "worker/procedures/runner.h"

#include "ledger/internal.h"
#include "topology/internal.h"

#include <stdio.h>

enum {
    /* RabbitMQ cancels the consumers of a quorum queue that is being deleted before it removes the
     * queue from its metadata. A look in between finds the queue. */
    DELETION_MS = 2000,
    LOOK_AGAIN_MS = 100,
    /* A deleted queue stays away for this time, so that each worker that consumed from it sees that
     * it is missing. A worker that finds it would take the cancel for a consumer timeout. */
    MISSING_MS = 500,
    /* No consumer timeout is shorter. RabbitMQ advises a minute or more. A network that is silent
     * for longer, while the queue is deleted and declared again, hides which of the two it was. */
    SHORTEST_TIMEOUT_MS = 2000
};

/* ----------------------------------------------------------------------------------- publishing */

static bh_status open_publish_channel(bh__runner *self, size_t index)
{
    bh__context *context = self->context;
    bh__link *link = &context->publish.link;
    amqp_channel_t channel = (amqp_channel_t)(BH__FIRST_PUBLISH_CHANNEL + index);
    bh__answer answer;
    amqp_confirm_select_t confirm = {.nowait = 0};
    bh_status status = bh__call_open_channel(self, link, channel, &answer);
    if (status == BH_OK)
        status = bh__call(self, link, channel, AMQP_CONFIRM_SELECT_METHOD, &confirm, AMQP_CONFIRM_SELECT_OK_METHOD, 0,
                          "switching confirms on", &answer);
    if (status == BH_OK)
        status = bh_ledger_open_publisher(context->ledger, &self->engine.publisher.channels[index].ledger_publisher);
    return status;
}

bh_status bh__open_publisher(bh__runner *self)
{
    bh_status status = BH_OK;
    for (size_t i = 0; status == BH_OK && i < BH__PUBLISH_CHANNELS; i++)
        if (!self->engine.publisher.channels[i].ledger_publisher)
            status = open_publish_channel(self, i);
    return status;
}

/* ------------------------------------------------------------------------------------ consuming */

static bh_status open_consume_channel(bh__runner *self)
{
    bh__consumer *consumer = &self->engine.consumer;
    bh__link *link = &self->context->consume.link;
    bh__answer answer;
    /* A new channel number each time. RabbitMQ up to 4.2 closes the channel of a message that
     * was held too long, once a minute until it is answered. The second channel.close must not
     * hit the next channel. */
    int next = consumer->channel + 1;
    consumer->channel =
        (amqp_channel_t)(next > link->channel_max || next < BH__FIRST_CONSUME_CHANNEL ? BH__FIRST_CONSUME_CHANNEL
                                                                                      : next);
    bh_status status = bh__call_open_channel(self, link, consumer->channel, &answer);
    return status == BH_OK ? bh__consumer_opened(consumer, self->context) : status;
}

static bh_status set_prefetch(bh__runner *self, bh__answer *answer)
{
    bh__context *context = self->context;
    amqp_basic_qos_t qos = {.prefetch_count = (uint16_t)context->settings->prefetch};
    return bh__call(self, &context->consume.link, self->engine.consumer.channel, AMQP_BASIC_QOS_METHOD, &qos,
                    AMQP_BASIC_QOS_OK_METHOD, 0, "setting the prefetch", answer);
}

static bh_status begin_consuming(bh__runner *self, bh__answer *answer)
{
    bh__context *context = self->context;
    bh__consumer *consumer = &self->engine.consumer;
    snprintf(consumer->tag, sizeof consumer->tag, "backhop-%u", ++consumer->tag_count);
    amqp_table_entry_t argument = {.key = amqp_cstring_bytes(BH_CONSUME_ARGUMENT),
                                   .value = {.kind = AMQP_FIELD_KIND_I32, .value.i32 = 0}};
    amqp_basic_consume_t consume = {.queue = bh__to_amqp(bh__topology_queue(context->settings->topology)),
                                    .consumer_tag = amqp_cstring_bytes(consumer->tag),
                                    .arguments = {1, &argument}};
    consumer->abandoned_before = context->abandoned_count;
    bh__consumer_limit(consumer, context);
    consumer->is_consuming = 1; /* set before the call, because the broker may cancel it before the reply is read */
    return bh__call(self, &context->consume.link, consumer->channel, AMQP_BASIC_CONSUME_METHOD, &consume,
                    AMQP_BASIC_CONSUME_OK_METHOD, 0, "consuming", answer);
}

/* Returns BH_ERR_CLASH and its reason if the work queue is a stream, else BH_ERR_CHANNEL. */
static bh_status explain_refusal(bh__runner *self, const bh__answer *answer)
{
    bh_declaring_explain(self->declaring, BH_REFUSAL_CONSUMER, answer->code, bh_str(answer->text), bh_str(""));
    if (bh_declaring_status(self->declaring) != BH_ERR_CLASH)
        return self->problem.status = BH_ERR_CHANNEL;
    return bh__report_set(&self->problem, BH_ERR_CLASH, "%s", bh_declaring_error(self->declaring).data);
}

static bh_status try_to_consume(bh__runner *self)
{
    bh__context *context = self->context;
    bh__consumer *consumer = &self->engine.consumer;
    bh__answer answer = {.code = 0};
    bh_status status = consumer->is_open ? BH_OK : open_consume_channel(self);
    if (status == BH_OK &&
        bh__ledger_unsettled(context->ledger) > 0) /* a refused consume closes the channel, which would requeue them */
        status = bh__find_queue(self);
    if (status == BH_ERR_MISSING || (status == BH_OK && !consumer->is_open)) /* the broker may have closed it */
        return status;
    if (status == BH_OK)
        status = set_prefetch(self, &answer);
    if (status == BH_OK)
        status = begin_consuming(self, &answer);
    if (status == BH_OK)
        return BH_OK;
    if (answer.code || bh__link_is_broken(&context->consume.link)) /* the broker closed the channel */
        bh__consumer_end(consumer, context);
    if (status == BH_ERR_MISSING)
        bh__report_add(&self->problem, "; declare the work queue first");
    return status == BH_ERR_CLASH ? explain_refusal(self, &answer) : status;
}

bh_status bh__consume(bh__runner *self)
{
    bh_status status = try_to_consume(self);
    if (status == BH_ERR_MISSING)
        self->context->setup.is_declared = 0; /* it may be deleted */
    return status;
}

void bh__cancel(bh__runner *self)
{
    bh__consumer *consumer = &self->engine.consumer;
    bh__context *context = self->context;
    bh__answer answer;
    amqp_basic_cancel_t cancel = {.consumer_tag = amqp_cstring_bytes(consumer->tag)};
    if (!consumer->is_consuming)
        return;
    consumer->is_consuming = 0;
    bh_status status = bh__call(self, &context->consume.link, consumer->channel, AMQP_BASIC_CANCEL_METHOD, &cancel,
                                AMQP_BASIC_CANCEL_OK_METHOD, 0, "cancelling the consumer", &answer);
    if (status != BH_OK && answer.code)
        bh__consumer_end(consumer, context);
}

/* Closes the channel, so that the broker requeues all unsettled messages. Requeues them first,
 * because 4.3 then does not count a failed delivery. */
static void abandon_channel(bh__runner *self)
{
    bh__context *context = self->context;
    bh__consumer *consumer = &self->engine.consumer;
    amqp_channel_close_t close = {.reply_code = AMQP_REPLY_SUCCESS, .reply_text = amqp_empty_bytes};
    bh__ledger_flush(context->ledger);
    bh__engine_advance(&self->engine);
    bh__consumer_give_back_all(consumer, context);
    bh__link_send(&context->consume.link, consumer->channel, AMQP_CHANNEL_CLOSE_METHOD, &close);
    bh__report reason = {.size = 0};
    bh__report_set(
        &reason, BH_ERR_CANCELLED,
        "a message was held longer than the broker's consumer timeout: the broker delivers the messages in hand again");
    int64_t count = bh__consumer_time_out(consumer, context, &reason);
    if (count)
        bh__consumer_emit_cancelled(consumer, context, BH_ERR_CANCELLED, bh__report_text(&reason).data, count);
    bh__report_free(&reason);
}

bh_status bh__resolve_cancel(bh__runner *self)
{
    bh__consumer *consumer = &self->engine.consumer;
    bh_status status = bh__find_queue(self);
    int64_t now_ms = bh__monotonic_ms();
    if (!consumer->is_open || (status != BH_OK && status != BH_ERR_MISSING))
        return status;
    if (status == BH_OK && now_ms < consumer->cancelled_ms + DELETION_MS) {
        self->context->setup.back_off.due_ms = now_ms + LOOK_AGAIN_MS;
        return BH_OK;
    }
    consumer->is_doubtful = 0;
    self->context->setup.back_off.due_ms = consumer->retry_ms;
    if (status == BH_ERR_MISSING)
        self->context->setup.back_off.due_ms =
            consumer->retry_ms > now_ms + MISSING_MS ? consumer->retry_ms : now_ms + MISSING_MS;
    else if (consumer->held_ms >= SHORTEST_TIMEOUT_MS) /* else it was deleted, and someone declared it again */
        abandon_channel(self);
    return BH_OK;
}
