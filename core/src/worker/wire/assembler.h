/* Assembler: assembles messages from the frames of a channel. Internal. */
#ifndef BACKHOP_WORKER_WIRE_ASSEMBLER_H
#define BACKHOP_WORKER_WIRE_ASSEMBLER_H

#include "worker/wire/link.h"
#include "worker/wire/message.h"

/* Assembles one message after the other. Zeroed: idle. */
typedef struct bh__assembler {
    int is_begun;
    uint64_t delivery_tag;
    int redelivered;
    char names[2][256];
    size_t name_sizes[2];
    bh_message *message; /* whose body is incomplete */
} bh__assembler;

/* Begins a message, with the fields of its method. delivery_tag: 0 if it has none. */
void bh__assembler_begin(bh__assembler *self, uint64_t delivery_tag, int redelivered, amqp_bytes_t exchange,
                         amqp_bytes_t routing_key);
/* Adds a content frame. *out: the whole message, or NULL. BH_ERR_NO_MEMORY; BH_ERR_CONNECTION if
 * the frame is out of order. */
bh_status bh__assembler_add(bh__assembler *self, const bh__frame *frame, bh_message **out);
void bh__assembler_clear(bh__assembler *self);

#endif
