/* Message: one that the broker sent, put together from its frames; and what is to become of it. Internal. */
#ifndef BACKHOP_WORKER_MESSAGE_H
#define BACKHOP_WORKER_MESSAGE_H

#include "worker_link.h"

#include <backhop/worker.h>
#include <stdatomic.h>

typedef enum bh__settling { BH__OPEN, BH__BEING_SETTLED, BH__SETTLED } bh__settling;

struct bh_message {
    atomic_int references; /* of who took it, and of the worker */
    const bh_worker *worker;
    bh_message *next;    /* in one of the worker's queues */
    uint64_t generation; /* of the consumer that it came to */
    uint64_t delivery_tag;
    int redelivered;
    bh_bytes exchange;
    bh_bytes routing_key;
    bh_bytes properties; /* property flags and list, as on the wire */
    bh_bytes body;
    /* written by who settles it, before it is queued */
    atomic_int settling; /* a bh__settling */
    bh_outcome outcome;
    int64_t retry_after_ms;
    char *error; /* owned; NULL: none */
    size_t error_size;
    /* of the worker's thread */
    bh_message *older; /* among those that are unsettled on the consumer's channel */
    bh_message *newer;
    int is_held; /* it is among them */
    int is_sent; /* its copy is with the broker, and not confirmed yet */
    int is_done; /* to be acknowledged */
    int is_left; /* unacknowledged for good */
    size_t body_filled;
    char data[]; /* what the bytes above name, each with a zero byte behind it */
};

void bh__message_keep(bh_message *self);
/* Sets what became of it. BH_ERR_NO_MEMORY. */
bh_status bh__message_set_error(bh_message *self, bh_bytes error);

/* A list of messages, first in, first out. */
typedef struct bh__queue {
    bh_message *first;
    bh_message *last;
    size_t count;
} bh__queue;

void bh__queue_push(bh__queue *self, bh_message *message);
bh_message *bh__queue_pop(bh__queue *self);
/* Frees the references that the list holds. */
void bh__queue_clear(bh__queue *self);
/* Moves all of `from` behind what is there. */
void bh__queue_append(bh__queue *self, bh__queue *from);

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
