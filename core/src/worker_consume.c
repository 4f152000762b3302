#include "worker_internal.h"

#include "topology_internal.h"

#include <stdio.h>
#include <stdlib.h>

enum { FIRST_CHANNEL = 3, VERSION_4_3 = 40003 };

/* An acknowledgement costs the broker the same for one message and for a hundred. So what is done behind a message
 * whose confirm is about to come waits for that: so long, or until it is this part of the prefetch. */
enum { GAP_MS = 50, GAP_SHARE = 2 };

/* ----------------------------------------------------------------------------------------------- what is unsettled */

static void hold(bh__consumer *self, bh_message *message)
{
    message->is_held = 1;
    message->older = self->newest;
    if (self->newest)
        self->newest->newer = message;
    else
        self->oldest = message;
    self->newest = message;
    self->held_count++;
}

/* The broker waits for it no more. */
static void forget(bh__consumer *self, bh_message *message)
{
    if (message->older)
        message->older->newer = message->newer;
    else
        self->oldest = message->newer;
    if (message->newer)
        message->newer->older = message->older;
    else
        self->newest = message->older;
    message->is_held = 0;
    message->older = message->newer = NULL;
    self->held_count--;
    bh_message_free(message);
}

void bh__consumer_free(bh__consumer *self)
{
    free(self->done);
}

int bh__worker_holds(const bh_worker *self, const bh_message *message)
{
    return self->consumer.is_open && message->generation == self->consumer.generation && message->is_held;
}

int64_t bh__worker_count_unacknowledged(const bh_worker *self)
{
    int64_t count = 0;
    for (const bh_message *message = self->consumer.oldest; message; message = message->newer)
        count += !message->is_done && !message->is_left;
    return count;
}

/* ----------------------------------------------------------------------------------------------------- the channel */

int64_t bh__worker_end_consumer(bh_worker *self)
{
    bh__consumer *consumer = &self->consumer;
    bh__queue untaken = {.first = NULL};
    int64_t count = 0;
    bh__shared_withdraw(&self->shared, &untaken);
    bh__queue_clear(&untaken);
    bh__queue_clear(&consumer->arrived);
    bh__assembler_clear(&consumer->assembler);
    for (; consumer->oldest; count++)
        forget(consumer, consumer->oldest);
    consumer->done_count = consumer->left_count = 0;
    consumer->is_open = consumer->is_consuming = consumer->is_doubtful = 0;
    self->is_ready = 0;
    bh__worker_drop_unwanted(self);
    return count;
}

static bh_status open_channel(bh_worker *self)
{
    bh__consumer *consumer = &self->consumer;
    bh__answer answer;
    /* A new number each time: RabbitMQ up to 4.2 closes the channel of a message held too long once a minute until it
     * is answered, and the second channel.close must not hit the next channel. */
    int next = consumer->channel + 1;
    consumer->channel =
        (amqp_channel_t)(next > self->consume.link.channel_max || next < FIRST_CHANNEL ? FIRST_CHANNEL : next);
    bh_status status = bh__worker_open_channel(self, &self->consume.link, consumer->channel, &answer);
    if (status == BH_OK) {
        consumer->is_open = 1;
        consumer->generation++;
        consumer->next_tag = 1;
    }
    return status;
}

static bh_status consume(bh_worker *self)
{
    bh__consumer *consumer = &self->consumer;
    bh__answer answer = {.code = 0};
    bh_status status = consumer->is_open ? BH_OK : open_channel(self);
    if (status == BH_OK && consumer->oldest) /* which a refusal would take along */
        status = bh__worker_find_queue(self);
    if (status == BH_ERR_MISSING || (status == BH_OK && !consumer->is_open)) /* it may be closed meanwhile */
        return status;
    if (status == BH_OK) {
        amqp_basic_qos_t qos = {.prefetch_count = (uint16_t)self->prefetch};
        status = bh__worker_call(self, &self->consume.link, consumer->channel, AMQP_BASIC_QOS_METHOD, &qos,
                                 AMQP_BASIC_QOS_OK_METHOD, 0, "setting the prefetch", &answer);
    }
    if (status == BH_OK) {
        snprintf(consumer->tag, sizeof consumer->tag, "backhop-%u", ++consumer->tag_count);
        amqp_basic_consume_t consume = {.queue = bh__to_amqp(bh_topology_queue(self->topology)),
                                        .consumer_tag = amqp_cstring_bytes(consumer->tag)};
        consumer->left_count = 0;
        consumer->is_consuming = 1; /* now: its end can come with its beginning */
        status = bh__worker_call(self, &self->consume.link, consumer->channel, AMQP_BASIC_CONSUME_METHOD, &consume,
                                 AMQP_BASIC_CONSUME_OK_METHOD, 0, "consuming", &answer);
    }
    if (status == BH_OK)
        return BH_OK;
    if (answer.code || bh__link_is_broken(&self->consume.link)) /* the channel is gone */
        bh__worker_end_consumer(self);
    if (status == BH_ERR_MISSING)
        bh__report_add(&self->problem, "; declare the work queue first");
    return status == BH_ERR_CLASH ? (self->problem.status = BH_ERR_CHANNEL) : status;
}

bh_status bh__worker_consume(bh_worker *self)
{
    bh_status status = consume(self);
    if (status == BH_ERR_MISSING)
        self->is_declared = 0; /* no more */
    return status;
}

void bh__worker_cancel(bh_worker *self)
{
    bh__consumer *consumer = &self->consumer;
    bh__answer answer;
    amqp_basic_cancel_t cancel = {.consumer_tag = amqp_cstring_bytes(consumer->tag)};
    if (!consumer->is_consuming)
        return;
    consumer->is_consuming = 0;
    bh_status status = bh__worker_call(self, &self->consume.link, consumer->channel, AMQP_BASIC_CANCEL_METHOD, &cancel,
                                       AMQP_BASIC_CANCEL_OK_METHOD, 0, "cancelling the consumer", &answer);
    if (status != BH_OK && answer.code)
        bh__worker_end_consumer(self);
}

void bh__worker_leave_behind(bh_worker *self, bh_message *message)
{
    bh__consumer *consumer = &self->consumer;
    message->is_left = 1;
    if (++consumer->left_count < (size_t)self->prefetch || !consumer->is_consuming)
        return;
    /* Nothing else fits the prefetch. Another consumer of the same channel has one of its own. */
    amqp_basic_cancel_t cancel = {.consumer_tag = amqp_cstring_bytes(consumer->tag), .nowait = 1};
    bh__link_send(&self->consume.link, consumer->channel, AMQP_BASIC_CANCEL_METHOD, &cancel);
    consumer->is_consuming = 0;
}

/* Waits a little before it consumes again: RabbitMQ 4.3 closes the connection of who consumes from a queue that is just
 * being deleted (541). */
static void tell_cancelled(bh_worker *self, bh_status status, const char *reason, int64_t count)
{
    char text[900];
    snprintf(text, sizeof text, "the consumer of \"%s\" has ended: %s", bh_topology_queue(self->topology).data, reason);
    self->is_ready = 0;
    self->is_declared = 0; /* the queue may be gone, and what was bound to it */
    bh__worker_back_off(self, &self->setup);
    bh__worker_tell(self, BH_EVENT_CANCELLED, status, bh_str(text), bh_str(""), 0, 0, count);
}

/* From 4.3 on it can mean a message that was held too long: that one is the broker's again, and no ack of it counts. */
static void cancelled(bh_worker *self, const amqp_basic_cancel_t *cancel)
{
    bh__consumer *consumer = &self->consumer;
    if (!consumer->is_consuming || !bh__same(bh__from_amqp(cancel->consumer_tag), bh_str(consumer->tag)))
        return;
    consumer->is_consuming = 0;
    consumer->is_doubtful = bh__broker_version(bh_str(self->consume.link.version)) >= VERSION_4_3;
    if (consumer->is_doubtful)
        bh__worker_back_off(self, &self->setup);
    else
        tell_cancelled(self, BH_ERR_CANCELLED, "the queue was deleted, or is not available", 0);
}

/* Leaves the channel, so that the broker has all again that is not settled. It is given back first: 4.3 counts no
 * failure then. */
static void abandon_channel(bh_worker *self)
{
    amqp_channel_close_t close = {.reply_code = AMQP_REPLY_SUCCESS, .reply_text = amqp_empty_bytes};
    bh__worker_flush_acks(self);
    bh__worker_give_back_all(self);
    bh__link_send(&self->consume.link, self->consumer.channel, AMQP_CHANNEL_CLOSE_METHOD, &close);
    int64_t count = bh__worker_end_consumer(self);
    tell_cancelled(self, BH_ERR_CANCELLED,
                   count ? "a message was held longer than the broker's consumer timeout"
                         : "the queue was made again, or was not available",
                   count);
}

bh_status bh__worker_resolve_cancel(bh_worker *self)
{
    bh__consumer *consumer = &self->consumer;
    bh_status status = bh__worker_find_queue(self);
    if (!consumer->is_open || (status != BH_OK && status != BH_ERR_MISSING))
        return status;
    consumer->is_doubtful = 0;
    if (status == BH_OK)
        abandon_channel(self);
    else
        tell_cancelled(self, BH_ERR_CANCELLED, "the queue was deleted", 0);
    return BH_OK;
}

static void channel_closed(bh_worker *self, const amqp_channel_close_t *close)
{
    bh__report words = {.size = 0};
    bh__worker_channel_closed(&self->consume.link, self->consumer.channel, close, "consuming", &words);
    int64_t count = bh__worker_end_consumer(self);
    tell_cancelled(self, BH_ERR_CHANNEL, bh__report_text(&words).data, count);
    bh__report_free(&words);
}

static void understand(bh_worker *self, const amqp_method_t *method)
{
    bh__consumer *consumer = &self->consumer;
    switch (method->id) {
    case AMQP_BASIC_DELIVER_METHOD: {
        const amqp_basic_deliver_t *deliver = method->decoded;
        bh__assembler_begin(&consumer->assembler, deliver->delivery_tag, deliver->redelivered != 0, deliver->exchange,
                            deliver->routing_key);
        break;
    }
    case AMQP_BASIC_CANCEL_METHOD:
        cancelled(self, method->decoded);
        break;
    case AMQP_CHANNEL_CLOSE_METHOD:
        channel_closed(self, method->decoded);
        break;
    default:
        break;
    }
}

static void arrive(bh_worker *self, bh_message *message)
{
    bh__consumer *consumer = &self->consumer;
    if (message->delivery_tag != consumer->next_tag++) {
        bh_message_free(message);
        bh__link_fail(&self->consume.link, BH_ERR_CONNECTION, "a delivery came out of order");
        return;
    }
    message->worker = self;
    message->generation = consumer->generation;
    self->setup.failures = 0; /* it works */
    hold(consumer, message);
    if (message->redelivered && bh__worker_guard(self, message))
        return;
    bh__message_keep(message); /* for who takes it */
    bh__queue_push(&consumer->arrived, message);
}

void bh__worker_consume_frame(bh_worker *self, const bh__frame *frame, const amqp_method_t *method)
{
    if (!self->consumer.is_open || frame->channel != self->consumer.channel)
        return; /* the last words of a channel that is gone */
    if (method) {
        understand(self, method);
        return;
    }
    bh_message *message;
    bh_status status = bh__assembler_add(&self->consumer.assembler, frame, &message);
    if (status != BH_OK)
        bh__link_fail(&self->consume.link, status, "a message could not be received (%s)",
                      status == BH_ERR_NO_MEMORY ? "no memory" : "its frames are out of order");
    else if (message)
        arrive(self, message);
}

/* ------------------------------------------------------------------------------------------------------ settling */

void bh__worker_acknowledge(bh_worker *self, bh_message *message)
{
    bh__consumer *consumer = &self->consumer;
    void *done = consumer->done;
    if (message->is_done)
        return;
    if (!bh__reserve(&done, &consumer->done_capacity, sizeof(bh_message *), consumer->done_count + 1)) {
        bh__link_fail(&self->consume.link, BH_ERR_NO_MEMORY, "no memory for an acknowledgement");
        return;
    }
    consumer->done = done;
    consumer->done[consumer->done_count++] = message;
    message->is_done = 1;
}

void bh__worker_nack(bh_worker *self, bh_message *message, int requeue)
{
    amqp_basic_nack_t nack = {.delivery_tag = message->delivery_tag, .requeue = requeue};
    bh__link_send(&self->consume.link, self->consumer.channel, AMQP_BASIC_NACK_METHOD, &nack);
    forget(&self->consumer, message);
}

void bh__worker_reject(bh_worker *self, bh_message *message, int requeue)
{
    amqp_basic_reject_t reject = {.delivery_tag = message->delivery_tag, .requeue = requeue};
    bh__link_send(&self->consume.link, self->consumer.channel, AMQP_BASIC_REJECT_METHOD, &reject);
    forget(&self->consumer, message);
}

void bh__worker_give_back_ready(bh_worker *self)
{
    bh__consumer *consumer = &self->consumer;
    bh__queue untaken = {.first = NULL};
    bh__queue_append(&untaken, &consumer->arrived);
    bh__shared_withdraw(&self->shared, &untaken);
    for (bh_message *message; (message = bh__queue_pop(&untaken));) {
        if (bh__worker_holds(self, message))
            bh__worker_nack(self, message, 1);
        bh_message_free(message);
    }
}

void bh__worker_give_back_all(bh_worker *self)
{
    const bh__consumer *consumer = &self->consumer;
    if (!consumer->is_open || !consumer->oldest)
        return;
    amqp_basic_nack_t nack = {.delivery_tag = 0, .multiple = 1, .requeue = 1}; /* all that there are */
    bh__link_send(&self->consume.link, consumer->channel, AMQP_BASIC_NACK_METHOD, &nack);
}

static void send_ack(bh_worker *self, uint64_t tag, int multiple)
{
    amqp_basic_ack_t ack = {.delivery_tag = tag, .multiple = multiple};
    bh__link_send(&self->consume.link, self->consumer.channel, AMQP_BASIC_ACK_METHOD, &ack);
}

/* All up to the first that is not done go with one acknowledgement; what is behind it stays in `done`. */
static void acknowledge_first(bh_worker *self)
{
    bh__consumer *consumer = &self->consumer;
    uint64_t last = 0;
    for (const bh_message *message = consumer->oldest; message && message->is_done; message = message->newer)
        last = message->delivery_tag;
    if (last == 0)
        return;
    send_ack(self, last, 1);
    size_t kept = 0;
    for (size_t i = 0; i < consumer->done_count; i++) {
        if (consumer->done[i]->delivery_tag <= last)
            forget(consumer, consumer->done[i]);
        else
            consumer->done[kept++] = consumer->done[i];
    }
    consumer->done_count = kept;
}

/* Those behind it go with one each. */
static void acknowledge_others(bh_worker *self)
{
    bh__consumer *consumer = &self->consumer;
    for (size_t i = 0; i < consumer->done_count; i++) {
        send_ack(self, consumer->done[i]->delivery_tag, 0);
        forget(consumer, consumer->done[i]);
    }
    consumer->done_count = 0;
    consumer->flush_ms = 0;
}

void bh__worker_flush_acks(bh_worker *self)
{
    acknowledge_first(self);
    acknowledge_others(self);
}

void bh__worker_flush_acks_in_time(bh_worker *self, int64_t now_ms)
{
    bh__consumer *consumer = &self->consumer;
    acknowledge_first(self);
    if (consumer->done_count == 0) {
        consumer->flush_ms = 0;
        return;
    }
    if (consumer->flush_ms == 0)
        consumer->flush_ms = now_ms + GAP_MS;
    if (!consumer->oldest->is_sent || now_ms >= consumer->flush_ms ||
        consumer->done_count >= (size_t)self->prefetch / GAP_SHARE)
        acknowledge_others(self);
}

int64_t bh__worker_acks_due_ms(const bh_worker *self)
{
    return self->consumer.done_count ? self->consumer.flush_ms : INT64_MAX;
}
