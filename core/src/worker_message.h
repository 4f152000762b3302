/* Message: one that the broker sent, put together from its frames. Internal. */
#ifndef BACKHOP_WORKER_MESSAGE_H
#define BACKHOP_WORKER_MESSAGE_H

#include "librabbitmq.h"

#include <backhop/status.h>

/* Zero bytes are none. Names and properties lie in the buffers of the connection's channel, which must not be
 * released before the message is. */
typedef struct bh__message {
    int is_begun;
    int is_complete;
    amqp_channel_t channel;
    uint64_t delivery_tag;
    int redelivered;
    amqp_bytes_t exchange;
    amqp_bytes_t routing_key;
    const amqp_basic_properties_t *properties;
    char *body; /* with a zero byte behind it */
    size_t body_size;
    size_t body_filled;
    size_t body_capacity;
} bh__message;

/* Begins with a basic.deliver or basic.get-ok. */
void bh__message_deliver(bh__message *self, amqp_channel_t channel, const amqp_basic_deliver_t *deliver);
void bh__message_get_ok(bh__message *self, amqp_channel_t channel, const amqp_basic_get_ok_t *get_ok);
/* Takes in a content frame of its channel. BH_ERR_NO_MEMORY, BH_ERR_CONNECTION (it does not belong here). */
bh_status bh__message_add(bh__message *self, const amqp_frame_t *frame);
/* Ends the message and keeps the body's memory for the next, unless it is large. */
void bh__message_release(bh__message *self);
void bh__message_free(bh__message *self);

#endif
