#define _DEFAULT_SOURCE

#include "topology_internal.h"
#include "worker_internal.h"

#include <poll.h>
#include <stdio.h>

enum {
    SLICE_MS = 1000, /* heartbeats are looked after as often */
    HELD_MS = 30000  /* longer is long: brokers time consumers out after minutes */
};

static bh_status consume(bh_worker *self)
{
    amqp_connection_state_t state = self->consumer.state;
    amqp_bytes_t queue = bh__to_amqp(bh_topology_queue(self->topology));
    amqp_rpc_reply_t reply = {.reply_type = AMQP_RESPONSE_NORMAL};
    if (!self->has_channel) {
        /* A new number each time: RabbitMQ up to 4.2 closes the channel of a message held too long once a minute until
         * it is answered, and the second channel.close must not hit the next channel. */
        self->channel = (amqp_channel_t)(self->channel % amqp_get_channel_max(state) + 1);
        amqp_channel_open(state, self->channel);
        reply = amqp_get_rpc_reply(state);
    }
    if (reply.reply_type == AMQP_RESPONSE_NORMAL) {
        amqp_basic_qos(state, self->channel, 0, (uint16_t)self->prefetch, 0);
        reply = amqp_get_rpc_reply(state);
    }
    if (reply.reply_type == AMQP_RESPONSE_NORMAL) {
        snprintf(self->consumer_tag, sizeof self->consumer_tag, "backhop-%u", ++self->consumer_count);
        amqp_bytes_t tag = amqp_cstring_bytes(self->consumer_tag);
        amqp_basic_consume(state, self->channel, queue, tag, 0, 0, 0, amqp_empty_table);
        reply = amqp_get_rpc_reply(state);
    }
    bh_status status = bh__connection_reply(&self->consumer, self->channel, reply, "consuming", NULL, &self->report);
    self->has_channel = self->is_consuming = status == BH_OK;
    self->drained_ms = bh__monotonic_ms();
    self->left_count = 0;
    self->is_cancelled |= status == BH_ERR_MISSING;
    if (status == BH_ERR_MISSING)
        bh__report_add(&self->report, "; declare the work queue first");
    else if (status == BH_ERR_CLASH)
        status = self->report.status = BH_ERR_CHANNEL;
    return status;
}

/* The queue is there again, but what bound it may not be. */
static bh_status declare_again(bh_worker *self)
{
    if (!self->is_cancelled || self->mode != BH_MODE_CREATE)
        return BH_OK;
    bh_status status = bh__worker_open_publisher(self);
    if (status == BH_OK)
        status = bh__worker_declare(self);
    self->is_cancelled = status != BH_OK;
    return status;
}

static bh_status cancelled(bh_worker *self)
{
    self->is_consuming = 0;
    self->is_cancelled = 1;
    return bh__report_set(
        &self->report, BH_ERR_CANCELLED,
        "the broker cancelled the consumer of \"%s\": the queue was deleted or is not available, or a message "
        "was held longer than the broker's consumer timeout",
        bh_topology_queue(self->topology).data);
}

static bh_status channel_closed(bh_worker *self, const amqp_channel_close_t *close)
{
    self->has_channel = self->is_consuming = 0;
    bh__channel_closed(&self->consumer, self->channel, close, "consuming", &self->report);
    bh__report_add(&self->report, "; unsettled messages will be delivered again");
    return self->report.status = BH_ERR_CHANNEL;
}

static bh_status understand(bh_worker *self, const amqp_frame_t *frame)
{
    if (frame->channel != self->channel)
        return BH_OK;
    if (frame->frame_type != AMQP_FRAME_METHOD) {
        bh_status status = bh__message_add(&self->message, frame);
        return status == BH_OK ? BH_OK
                               : bh__connection_failed(&self->consumer,
                                                       status == BH_ERR_NO_MEMORY ? AMQP_STATUS_NO_MEMORY
                                                                                  : AMQP_STATUS_UNEXPECTED_STATE,
                                                       "receiving a message", &self->report);
    }
    switch (frame->payload.method.id) {
    case AMQP_BASIC_DELIVER_METHOD:
        bh__message_deliver(&self->message, self->channel, frame->payload.method.decoded);
        return BH_OK;
    case AMQP_BASIC_CANCEL_METHOD:
        return cancelled(self);
    case AMQP_CHANNEL_CLOSE_METHOD:
        return channel_closed(self, frame->payload.method.decoded);
    default:
        return BH_OK;
    }
}

/* What the broker answered on the consumer's channel, which may be closed already. */
static bh_status answered(bh_worker *self)
{
    amqp_rpc_reply_t reply = amqp_get_rpc_reply(self->consumer.state);
    bh_status status = bh__connection_reply(&self->consumer, self->channel, reply, "settling", NULL, &self->report);
    if (status == BH_OK || status == BH_ERR_CONNECTION || status == BH_ERR_NO_MEMORY)
        return status;
    self->has_channel = self->is_consuming = 0;
    bh__report_add(&self->report, "; the broker will deliver the message again");
    return self->report.status = BH_ERR_CHANNEL;
}

static bh_status give_back(bh_worker *self, const amqp_basic_deliver_t *deliver)
{
    int sent = amqp_basic_nack(self->consumer.state, self->channel, deliver->delivery_tag, 0, 1);
    return sent == AMQP_STATUS_OK ? BH_OK : bh__connection_failed(&self->consumer, sent, "settling", &self->report);
}

/* Reads what came before the cancel-ok, and gives the messages among it back. The buffers stay: the current message
 * lies in them. */
static bh_status clear(bh_worker *self)
{
    bh_status status = BH_OK;
    int was_cancelled = 0;
    while (status == BH_OK) {
        amqp_frame_t frame;
        status = bh__connection_frame(&self->consumer, 0, &frame, &self->report);
        if (status != BH_OK || frame.channel != self->channel || frame.frame_type != AMQP_FRAME_METHOD)
            continue;
        if (frame.payload.method.id == AMQP_BASIC_DELIVER_METHOD)
            status = give_back(self, frame.payload.method.decoded);
        else if (frame.payload.method.id == AMQP_CHANNEL_CLOSE_METHOD)
            status = channel_closed(self, frame.payload.method.decoded);
        else if (frame.payload.method.id == AMQP_BASIC_CANCEL_METHOD)
            was_cancelled = 1;
    }
    if (status != BH_ERR_TIMEOUT)
        return status;
    return was_cancelled ? cancelled(self) : BH_OK;
}

/* RabbitMQ 4.3 times a consumer out by basic.cancel, queues its messages again and takes late acks without a word;
 * those before close the channel. Nor do those before give a message back without counting it. */
static int is_timed_out_by_cancel(const bh_worker *self)
{
    return bh__broker_version(bh_str(self->version)) >= 4 * 10000 + 3;
}

/* What the broker sent before this cancel-ok tells whether it timed the consumer out. */
static bh_status cancel(bh_worker *self)
{
    amqp_basic_cancel(self->consumer.state, self->channel, amqp_cstring_bytes(self->consumer_tag));
    bh_status status = answered(self);
    self->is_consuming = 0;
    return status == BH_OK ? clear(self) : status;
}

bh_status bh__worker_verify_hold(bh_worker *self)
{
    int is_long = bh__monotonic_ms() - self->drained_ms > HELD_MS;
    if (is_long && self->is_consuming && is_timed_out_by_cancel(self))
        return cancel(self);
    amqp_basic_qos(self->consumer.state, self->channel, 0, (uint16_t)self->prefetch, 0);
    return answered(self);
}

bh_status bh__worker_leave_behind(bh_worker *self)
{
    bh__worker_release(self);
    int is_full = ++self->left_count >= self->prefetch;
    return is_full && self->is_consuming ? cancel(self) : BH_OK;
}

void bh__worker_leave(bh_worker *self)
{
    if (!self->has_channel || !bh__connection_is_open(&self->consumer))
        return;
    amqp_connection_state_t state = self->consumer.state;
    bh__connection_hurry(&self->consumer);
    if (self->is_consuming) {
        amqp_basic_cancel(state, self->channel, amqp_cstring_bytes(self->consumer_tag));
        self->consumer.is_broken = amqp_get_rpc_reply(state).reply_type != AMQP_RESPONSE_NORMAL;
    }
    if (!self->consumer.is_broken)
        self->consumer.is_broken = amqp_basic_nack(state, self->channel, 0, 1, 1) != AMQP_STATUS_OK;
}

/* Reads what has arrived, until the message is complete or BH_ERR_TIMEOUT. */
static bh_status receive(bh_worker *self)
{
    bh_status status = BH_OK;
    while (status == BH_OK && !self->message.is_complete) {
        amqp_frame_t frame;
        status = bh__connection_frame(&self->consumer, 0, &frame, &self->report);
        if (status == BH_OK)
            status = understand(self, &frame);
    }
    if (status != BH_OK && status != BH_ERR_TIMEOUT)
        bh__worker_release(self);
    return status;
}

/* Waits until something arrives, or until heartbeats want attention. librabbitmq holds nothing back: it was read
 * until it had no more. */
static void wait_for_more(const bh_worker *self, int64_t timeout_ms)
{
    struct pollfd ready[] = {
        {.fd = bh__connection_fd(&self->consumer), .events = POLLIN},
        {.fd = -1, .events = POLLIN},
        {.fd = self->is_running ? self->wake[0] : -1, .events = POLLIN},
    };
    if (bh__connection_is_open(&self->publisher.connection))
        ready[1].fd = bh__connection_fd(&self->publisher.connection);
    poll(ready, 3, (int)(timeout_ms < SLICE_MS ? timeout_ms : SLICE_MS));
}

bh_status bh__worker_service(bh_worker *self)
{
    bh__connection_beat(&self->consumer);
    return bh__publisher_service(&self->publisher, &self->report);
}

bh_status bh__worker_take(bh_worker *self, int64_t timeout_ms)
{
    if (self->is_current)
        return bh__report_set(&self->report, BH_ERR_STATE, "the message taken before is not settled; settle it first");
    if (!self->consumer.state)
        return bh__worker_not_connected(self);
    if (self->consumer.is_broken || self->publisher.connection.is_broken)
        return bh__report_set(&self->report, BH_ERR_CONNECTION, "the connection was lost; connect again");
    int64_t deadline_ms = bh__monotonic_ms() + (timeout_ms > 0 ? timeout_ms : 0);
    bh__connection_beat(&self->publisher.connection); /* where messages never stop coming and need no copy */
    bh_status status = self->is_consuming ? BH_OK : consume(self);
    if (status == BH_OK)
        status = declare_again(self);
    while (status == BH_OK) {
        status = receive(self);
        if (status != BH_ERR_TIMEOUT)
            break;
        self->drained_ms = bh__monotonic_ms();
        status = bh__worker_service(self);
        if (status != BH_OK)
            break;
        int64_t left_ms = deadline_ms - bh__monotonic_ms();
        if (left_ms <= 0 || (self->is_running && atomic_load(&self->is_stopped)))
            return bh__report_set(&self->report, BH_ERR_TIMEOUT, "no message arrived within %lld ms",
                                  (long long)timeout_ms);
        wait_for_more(self, left_ms);
    }
    if (status == BH_ERR_CONNECTION)
        bh__report_add(&self->report, "; connect again");
    if (status == BH_OK)
        status = bh__worker_read(self, &self->message);
    if (status == BH_OK)
        status = bh__worker_draw(self);
    self->is_current = status == BH_OK;
    return status;
}

bh_status bh_worker_take(bh_worker *self, int64_t timeout_ms)
{
    return self ? bh__worker_take(self, timeout_ms) : BH_ERR_ARGUMENT;
}
