/* Consumer: the channel that deliveries come on, and what is told the broker about them. Internal. */
#ifndef BACKHOP_WORKER_ENGINE_CONSUMER_H
#define BACKHOP_WORKER_ENGINE_CONSUMER_H

#include "engine/context.h"
#include "wire/assembler.h"

typedef struct bh__consumer {
    int is_open;      /* its channel */
    int is_consuming; /* the broker sends; it may be cancelled and the channel open still */
    int is_doubtful;  /* cancelled, and it is not known yet whether the broker has its messages again */
    amqp_channel_t channel;
    int64_t number; /* of the channel in the ledger */
    char tag[32];
    unsigned tag_count; /* numbers the tags: no two are the same */
    bh__assembler assembler;
    bh__queue arrived;   /* to be offered to the callers */
    uint64_t next_tag;   /* that the broker will send */
    int64_t left_before; /* messages that were left before it began: later ones take up its prefetch */
} bh__consumer;

/* The channel was opened; BH_ERR_NO_MEMORY. */
bh_status bh__consumer_opened(bh__consumer *self, bh__context *context);
/* Forgets the channel and all that came on it, as the broker does. How many messages it will deliver again. */
int64_t bh__consumer_end(bh__consumer *self, bh__context *context);
/* Tells that consuming has ended: the topology is looked at again, and consuming begins anew, after a little while.
 * RabbitMQ 4.3 closes the connection of who consumes from a queue that is just being deleted (541). */
void bh__consumer_tell_cancelled(bh__consumer *self, bh__context *context, bh_status status, const char *reason,
                                 int64_t count);
/* A method or content frame on its channel. */
void bh__consumer_on_frame(bh__consumer *self, bh__context *context, const bh__frame *frame,
                           const amqp_method_t *method);

/* Ends consuming where what was left takes up the whole prefetch: another consumer of the same channel has one of its
 * own. */
void bh__consumer_look_at_left(bh__consumer *self, bh__context *context);
/* Gives back what nobody took. */
void bh__consumer_give_back_ready(bh__consumer *self, bh__context *context);
/* Gives back all that is not acknowledged, at once: RabbitMQ 4.3 counts no basic.nack as a failed delivery. */
void bh__consumer_give_back_all(const bh__consumer *self, bh__context *context);

#endif
