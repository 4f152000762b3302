#include "worker_message.h"

#include <stdlib.h>
#include <string.h>

enum { KEPT_BODY_BYTES = 1048576 };

static void begin(bh__message *self, amqp_channel_t channel)
{
    bh__message_release(self);
    self->is_begun = 1;
    self->channel = channel;
}

void bh__message_deliver(bh__message *self, amqp_channel_t channel, const amqp_basic_deliver_t *deliver)
{
    begin(self, channel);
    self->delivery_tag = deliver->delivery_tag;
    self->redelivered = deliver->redelivered != 0;
    self->exchange = deliver->exchange;
    self->routing_key = deliver->routing_key;
}

void bh__message_get_ok(bh__message *self, amqp_channel_t channel, const amqp_basic_get_ok_t *get_ok)
{
    begin(self, channel);
    self->delivery_tag = get_ok->delivery_tag;
    self->redelivered = get_ok->redelivered != 0;
    self->exchange = get_ok->exchange;
    self->routing_key = get_ok->routing_key;
}

static bh_status reserve_body(bh__message *self, uint64_t size)
{
    if (size >= SIZE_MAX)
        return BH_ERR_NO_MEMORY;
    if (size + 1 > self->body_capacity) {
        char *body = realloc(self->body, (size_t)size + 1);
        if (!body)
            return BH_ERR_NO_MEMORY;
        self->body = body;
        self->body_capacity = (size_t)size + 1;
    }
    self->body_size = (size_t)size;
    self->body[size] = '\0';
    return BH_OK;
}

bh_status bh__message_add(bh__message *self, const amqp_frame_t *frame)
{
    if (!self->is_begun || self->is_complete)
        return BH_ERR_CONNECTION;
    if (frame->frame_type == AMQP_FRAME_HEADER && !self->properties) {
        bh_status status = reserve_body(self, frame->payload.properties.body_size);
        if (status != BH_OK)
            return status;
        self->properties = frame->payload.properties.decoded;
    } else if (frame->frame_type == AMQP_FRAME_BODY && self->properties &&
               frame->payload.body_fragment.len <= self->body_size - self->body_filled) {
        amqp_bytes_t fragment = frame->payload.body_fragment;
        if (fragment.len)
            memcpy(self->body + self->body_filled, fragment.bytes, fragment.len);
        self->body_filled += fragment.len;
    } else {
        return BH_ERR_CONNECTION;
    }
    self->is_complete = self->body_filled == self->body_size;
    return BH_OK;
}

void bh__message_release(bh__message *self)
{
    bh__message empty = {.body = self->body, .body_capacity = self->body_capacity};
    if (self->body_capacity > KEPT_BODY_BYTES) {
        free(self->body);
        empty.body = NULL;
        empty.body_capacity = 0;
    }
    *self = empty;
}

void bh__message_free(bh__message *self)
{
    free(self->body);
}
