#define _DEFAULT_SOURCE

#include "worker_publish.h"

#include "worker_clock.h"
#include "worker_codec.h"

#include <poll.h>

enum {
    CHANNEL = 1,
    SLICE_MS = 1000,        /* the other connection gets its heartbeats as often */
    FRAGMENT_BYTES = 16384, /* of a body: what a socket that polls as writable takes at once */
    FRAME_OVERHEAD = 8
};

static const char *const PUBLISHING = "publishing";

bh_status bh__publisher_open(bh__publisher *self, const bh__settings *settings, const char *name, bh__report *report)
{
    if (!bh__connection_is_open(&self->connection)) {
        bh__publisher_close(self);
        bh_status status = bh__connection_open(&self->connection, settings, name, report);
        if (status != BH_OK)
            return status;
    }
    if (self->is_confirming)
        return BH_OK;
    amqp_connection_state_t state = self->connection.state;
    amqp_channel_open(state, CHANNEL);
    amqp_rpc_reply_t reply = amqp_get_rpc_reply(state);
    if (reply.reply_type == AMQP_RESPONSE_NORMAL) {
        amqp_confirm_select(state, CHANNEL);
        reply = amqp_get_rpc_reply(state);
    }
    bh_status status =
        bh__connection_reply(&self->connection, CHANNEL, reply, "opening a channel with confirms", NULL, report);
    self->is_confirming = status == BH_OK;
    self->published = 0;
    return status;
}

void bh__publisher_close(bh__publisher *self)
{
    bh__connection_close(&self->connection);
    self->is_confirming = 0;
    self->is_pending = 0;
}

static void abandon(bh__publisher *self)
{
    self->connection.is_broken = 1;
    bh__publisher_close(self);
}

void bh__publisher_forget(bh__publisher *self)
{
    if (self->is_pending)
        abandon(self);
}

static int covers(const bh__publisher *self, uint64_t delivery_tag, int multiple)
{
    return delivery_tag == self->published || (multiple && (delivery_tag == 0 || delivery_tag > self->published));
}

static bh_status returned(bh__publisher *self, const amqp_basic_return_t *method, bh__report *report)
{
    self->was_returned = 1;
    bh_bytes text = bh__from_amqp(method->reply_text);
    bh_bytes exchange = bh__from_amqp(method->exchange);
    bh_bytes routing_key = bh__from_amqp(method->routing_key);
    return bh__report_set(
        report, BH_ERR_PUBLISH,
        "the broker returned the copy (%d %.*s): no queue takes routing key \"%.*s\" of exchange \"%.*s\"",
        method->reply_code, (int)text.size, text.data, (int)routing_key.size, routing_key.data, (int)exchange.size,
        exchange.data);
}

static bh_status closed(bh__publisher *self, const amqp_channel_close_t *method, bh__report *report)
{
    self->is_confirming = 0;
    bh_status status = bh__channel_closed(&self->connection, CHANNEL, method, PUBLISHING, report);
    return status == BH_ERR_CLASH ? (report->status = BH_ERR_CHANNEL) : status;
}

/* A return's own content follows in frames of its own, and says nothing new. */
static void understand(bh__publisher *self, const amqp_frame_t *frame, bh__report *report)
{
    if (frame->frame_type != AMQP_FRAME_METHOD || frame->channel != CHANNEL)
        return;
    switch (frame->payload.method.id) {
    case AMQP_BASIC_ACK_METHOD: {
        const amqp_basic_ack_t *ack = frame->payload.method.decoded;
        if (covers(self, ack->delivery_tag, ack->multiple))
            self->answer = BH__CONFIRMED;
        break;
    }
    case AMQP_BASIC_NACK_METHOD: {
        const amqp_basic_nack_t *nack = frame->payload.method.decoded;
        if (covers(self, nack->delivery_tag, nack->multiple))
            self->answer = BH__NACKED;
        break;
    }
    case AMQP_BASIC_RETURN_METHOD:
        self->meaning = returned(self, frame->payload.method.decoded, report);
        break;
    case AMQP_CHANNEL_CLOSE_METHOD:
        self->meaning = closed(self, frame->payload.method.decoded, report);
        self->answer = BH__CLOSED;
        break;
    default:
        break;
    }
}

/* Waits for a frame, and releases it once understood. BH_ERR_TIMEOUT, BH_ERR_CONNECTION, BH_ERR_NO_MEMORY. */
static bh_status listen(bh__publisher *self, int64_t timeout_ms, bh__report *report)
{
    amqp_frame_t frame;
    bh_status status = bh__connection_frame(&self->connection, timeout_ms, &frame, report);
    if (status != BH_OK)
        return status;
    understand(self, &frame, report);
    amqp_maybe_release_buffers_on_channel(self->connection.state, CHANNEL);
    return BH_OK;
}

bh_status bh__publisher_service(bh__publisher *self, bh__report *report)
{
    bh_status status = BH_OK;
    while (status == BH_OK && bh__connection_is_open(&self->connection))
        status = listen(self, 0, report);
    return status == BH_ERR_TIMEOUT ? BH_OK : status;
}

static void beat_others(const bh__publisher *self)
{
    for (size_t i = 0; i < sizeof self->others / sizeof self->others[0]; i++)
        if (self->others[i])
            bh__connection_beat(self->others[i]);
}

static int64_t slice_until(int64_t deadline_ms)
{
    int64_t left_ms = deadline_ms - bh__monotonic_ms();
    return left_ms < 0 ? 0 : left_ms > SLICE_MS ? SLICE_MS : left_ms;
}

/* Waits until the broker reads publishes. */
static bh_status wait_unblocked(bh__publisher *self, int64_t deadline_ms, bh__report *report)
{
    for (;;) {
        int is_blocked = self->connection.is_blocked;
        int64_t slice_ms = is_blocked ? slice_until(deadline_ms) : 0;
        bh_status status = listen(self, slice_ms, report);
        beat_others(self);
        if (self->answer == BH__CLOSED)
            return self->meaning;
        if (status == BH_ERR_TIMEOUT && !self->connection.is_blocked)
            return BH_OK;
        if (status == BH_ERR_TIMEOUT && slice_ms == 0)
            return bh__report_set(
                report, BH_ERR_PUBLISH,
                "the broker blocks publishers (connection.blocked), as it does when memory or disk run "
                "low; free some and settle again");
        if (status != BH_OK && status != BH_ERR_TIMEOUT)
            return status;
    }
}

/* librabbitmq waits without limit for a socket to take a frame, so the frame is not given before it can. */
static int send_frame(bh__publisher *self, const amqp_frame_t *frame, int64_t deadline_ms)
{
    struct pollfd socket = {.fd = bh__connection_fd(&self->connection), .events = POLLOUT};
    while (poll(&socket, 1, (int)slice_until(deadline_ms)) <= 0) {
        beat_others(self);
        if (bh__monotonic_ms() >= deadline_ms)
            return AMQP_STATUS_TIMEOUT;
    }
    return amqp_send_frame(self->connection.state, frame);
}

static int send_content(bh__publisher *self, const bh__publication *publication, int64_t deadline_ms)
{
    amqp_basic_publish_t method = {.exchange = bh__to_amqp(publication->exchange),
                                   .routing_key = bh__to_amqp(publication->routing_key),
                                   .mandatory = publication->mandatory};
    amqp_frame_t frame = {.frame_type = AMQP_FRAME_METHOD, .channel = CHANNEL};
    frame.payload.method.id = AMQP_BASIC_PUBLISH_METHOD;
    frame.payload.method.decoded = &method;
    int status = send_frame(self, &frame, deadline_ms);
    if (status != AMQP_STATUS_OK)
        return status;

    frame = (amqp_frame_t){.frame_type = AMQP_FRAME_HEADER, .channel = CHANNEL};
    frame.payload.properties.class_id = AMQP_BASIC_CLASS;
    frame.payload.properties.body_size = publication->body.size;
    frame.payload.properties.decoded = bh__unconst(publication->properties);
    status = send_frame(self, &frame, deadline_ms);

    size_t most = (size_t)amqp_get_frame_max(self->connection.state) - FRAME_OVERHEAD;
    if (most > FRAGMENT_BYTES)
        most = FRAGMENT_BYTES;
    for (size_t sent = 0; status == AMQP_STATUS_OK && sent < publication->body.size;) {
        bh_bytes fragment = {publication->body.data + sent, publication->body.size - sent};
        if (fragment.size > most)
            fragment.size = most;
        frame = (amqp_frame_t){.frame_type = AMQP_FRAME_BODY, .channel = CHANNEL};
        frame.payload.body_fragment = bh__to_amqp(fragment);
        status = send_frame(self, &frame, deadline_ms);
        sent += fragment.size;
    }
    return status;
}

static bh_status unconfirmed(int64_t timeout_ms, int is_blocked, bh__report *report)
{
    return bh__report_set(report, BH_ERR_PUBLISH, "the broker did not confirm the copy within %lld ms%s; settle again",
                          (long long)timeout_ms, is_blocked ? " (it blocks publishers: memory or disk run low)" : "");
}

static bh_status begin(bh__publisher *self, const bh__publication *publication, int64_t timeout_ms, bh__report *report)
{
    int64_t deadline_ms = bh__monotonic_ms() + timeout_ms;
    self->was_returned = 0;
    self->answer = BH__NO_ANSWER;
    self->meaning = BH_OK;
    bh_status status = wait_unblocked(self, deadline_ms, report);
    if (status != BH_OK)
        return status;
    int sent = send_content(self, publication, deadline_ms);
    if (sent == AMQP_STATUS_TIMEOUT) {
        bh__publisher_service(self, report); /* perhaps it said that it blocks publishers */
        int is_blocked = self->connection.is_blocked;
        abandon(self);
        return unconfirmed(timeout_ms, is_blocked, report);
    }
    if (sent != AMQP_STATUS_OK)
        return bh__connection_failed(&self->connection, sent, PUBLISHING, report);
    self->published++;
    self->is_pending = 1;
    return BH_OK;
}

/* An alarm ends some time, and the broker takes the publish then: another one would be a second copy. Else a confirm
 * that comes later must not be taken for the next one's, so the connection ends here. */
static bh_status late(bh__publisher *self, int64_t timeout_ms, bh__report *report)
{
    bh__publisher_service(self, report);
    int is_blocked = self->connection.is_blocked;
    if (!bh__connection_is_open(&self->connection) || (!is_blocked && self->answer == BH__NO_ANSWER))
        abandon(self);
    return unconfirmed(timeout_ms, is_blocked, report);
}

static bh_status answered(bh__publisher *self, const bh__publication *publication, bh__report *report)
{
    self->is_pending = 0;
    if (self->answer != BH__NACKED)
        return self->meaning;
    return bh__report_set(report, BH_ERR_PUBLISH,
                          "the broker nacked the copy for exchange \"%.*s\", routing key \"%.*s\": a queue there is "
                          "full (reject-publish) or not available; settle again after a while",
                          (int)publication->exchange.size, publication->exchange.data,
                          (int)publication->routing_key.size, publication->routing_key.data);
}

bh_status bh__publisher_publish(bh__publisher *self, const bh__publication *publication, int64_t timeout_ms,
                                bh__report *report)
{
    int64_t deadline_ms = bh__monotonic_ms() + timeout_ms;
    bh_status status = self->is_pending ? BH_OK : begin(self, publication, timeout_ms, report);
    while (status == BH_OK && self->answer == BH__NO_ANSWER) {
        int64_t slice_ms = slice_until(deadline_ms);
        status = listen(self, slice_ms, report);
        beat_others(self);
        if (status == BH_ERR_TIMEOUT)
            status = slice_ms == 0 ? late(self, timeout_ms, report) : BH_OK;
    }
    return status == BH_OK ? answered(self, publication, report) : status;
}
