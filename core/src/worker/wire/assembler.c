#include "worker/wire/assembler.h"

#include "base/memory.h"

#include <stdlib.h>

enum {
    HEADER_START = 12,          /* of a content header: class, weight, body size */
    MOST_BODY_BYTES = 536870912 /* RabbitMQ's limit, whatever its max_message_size */
};

void bh__assembler_clear(bh__assembler *self)
{
    bh_message_free(self->message);
    self->message = NULL;
    self->is_begun = 0;
}

void bh__assembler_begin(bh__assembler *self, uint64_t delivery_tag, int redelivered, amqp_bytes_t exchange,
                         amqp_bytes_t routing_key)
{
    bh__assembler_clear(self);
    const amqp_bytes_t names[] = {exchange, routing_key};
    self->is_begun = 1;
    self->delivery_tag = delivery_tag;
    self->redelivered = redelivered;
    for (int i = 0; i < 2; i++) {
        self->name_sizes[i] = names[i].len < sizeof self->names[i] ? names[i].len : sizeof self->names[i] - 1;
        if (names[i].len)
            memcpy(self->names[i], names[i].bytes, self->name_sizes[i]);
    }
}

static bh_status begin_content(bh__assembler *self, bh_bytes payload)
{
    uint64_t body_size = bh__get_number(payload.data + 4, 8);
    bh_bytes properties = {payload.data + HEADER_START, payload.size - HEADER_START};
    size_t names = self->name_sizes[0] + self->name_sizes[1];
    if (body_size > MOST_BODY_BYTES)
        return BH_ERR_CONNECTION;
    bh_message *message = malloc(sizeof *message + names + properties.size + (size_t)body_size + 4);
    if (!message)
        return BH_ERR_NO_MEMORY;
    memset(message, 0, sizeof *message);
    atomic_init(&message->references, 1);
    atomic_init(&message->settling, BH__OPEN);
    char *at = message->data;
    message->delivery_tag = self->delivery_tag;
    message->redelivered = self->redelivered;
    message->exchange = bh__keep(&at, (bh_bytes){self->names[0], self->name_sizes[0]});
    message->routing_key = bh__keep(&at, (bh_bytes){self->names[1], self->name_sizes[1]});
    message->properties = bh__keep(&at, properties);
    message->body = (bh_bytes){at, (size_t)body_size};
    at[body_size] = '\0';
    self->message = message;
    return BH_OK;
}

static char *body_of(bh_message *message)
{
    return message->data + (message->body.data - message->data);
}

bh_status bh__assembler_add(bh__assembler *self, const bh__frame *frame, bh_message **out)
{
    *out = NULL;
    bh_message *message = self->message;
    if (!self->is_begun)
        return BH_ERR_CONNECTION;
    if (frame->type == AMQP_FRAME_HEADER && !message && frame->payload.size >= HEADER_START) {
        bh_status status = begin_content(self, frame->payload);
        if (status != BH_OK)
            return status;
        message = self->message;
    } else if (frame->type == AMQP_FRAME_BODY && message &&
               frame->payload.size <= message->body.size - message->body_filled) {
        memcpy(body_of(message) + message->body_filled, frame->payload.data, frame->payload.size);
        message->body_filled += frame->payload.size;
    } else {
        return BH_ERR_CONNECTION;
    }
    if (message->body_filled == message->body.size) {
        *out = message;
        self->message = NULL;
        self->is_begun = 0;
    }
    return BH_OK;
}
