/* Assembler: puts messages together from the frames of a channel. Internal. */
#ifndef BACKHOP_WORKER_WIRE_ASSEMBLER_H
#define BACKHOP_WORKER_WIRE_ASSEMBLER_H

#include "wire/link.h"
#include "wire/message.h"

/* Puts one message after the other together from the frames of one channel. Zero bytes are an idle one. */
typedef struct bh__assembler {
    int is_begun;
    uint64_t delivery_tag;
    int redelivered;
    char names[2][256];
    size_t name_sizes[2];
    bh_message *message; /* whose body is coming */
} bh__assembler;

/* Begins with the method that announces content: its delivery tag (0: none), exchange and routing key. */
void bh__assembler_begin(bh__assembler *self, uint64_t delivery_tag, int redelivered, amqp_bytes_t exchange,
                         amqp_bytes_t routing_key);
/* Takes in a content frame; *out is the message once it is whole, else NULL. BH_ERR_NO_MEMORY, BH_ERR_CONNECTION (the
 * frame does not belong here). */
bh_status bh__assembler_add(bh__assembler *self, const bh__frame *frame, bh_message **out);
void bh__assembler_clear(bh__assembler *self);

#endif
