/* Consumer: the channel that deliveries arrive on, and their acknowledgement. Internal. */
#ifndef BACKHOP_WORKER_ENGINE_CONSUMER_H
#define BACKHOP_WORKER_ENGINE_CONSUMER_H

#include "worker/engine/context.h"
#include "worker/wire/assembler.h"

typedef struct bh__consumer {
    int is_open;          /* the channel */
    int is_consuming;     /* the broker sends deliveries; after a cancel, the channel can stay open */
    int is_doubtful;      /* cancelled, and it is not known yet if the broker requeued the messages in hand */
    int64_t cancelled_ms; /* when, if is_doubtful */
    int64_t held_ms;      /* how long the oldest message was in hand then */
    int64_t retry_ms;     /* the end of the back-off that the cancel began */
    amqp_channel_t channel;
    int64_t ledger_channel; /* the channel in the ledger */
    char tag[32];
    unsigned tag_count; /* makes each tag unique */
    bh__assembler assembler;
    bh__message_list arrived; /* not offered to callers yet */
    uint64_t next_tag;        /* of the next delivery */
    int64_t most_in_hand;     /* more deliveries than this break the connection */
    int64_t abandoned_before; /* the count before it began: messages abandoned later take up its prefetch */
} bh__consumer;

/* Enters the new channel in the ledger. BH_ERR_NO_MEMORY. */
bh_status bh__consumer_opened(bh__consumer *self, bh__context *context);
/* Forgets the channel and its deliveries, as the broker does. Returns the number of messages
 * that the broker delivers again. */
int64_t bh__consumer_end(bh__consumer *self, bh__context *context);
/* Like bh__consumer_end, if the broker's consumer timeout is the cause. Adds to the reason which
 * message was in hand longest. */
int64_t bh__consumer_time_out(bh__consumer *self, bh__context *context, bh__report *reason);
/* Emits BH_EVENT_CANCELLED. The topology is declared again and consuming begins again after a
 * back-off. RabbitMQ 4.3 closes the connection (541) if a client consumes from a queue while it
 * is deleted. */
void bh__consumer_emit_cancelled(bh__consumer *self, bh__context *context, bh_status status, const char *reason,
                                 int64_t count);
/* Sets the most messages in hand, before consuming begins: twice the prefetch, and the messages of
 * earlier consumers of the channel. This bounds memory if a broker ignores the prefetch. */
void bh__consumer_limit(bh__consumer *self, const bh__context *context);
/* Handles a method or content frame on the channel. */
void bh__consumer_on_frame(bh__consumer *self, bh__context *context, const bh__frame *frame,
                           const amqp_method_t *method);

/* Ends consuming, without waiting for the broker's answer. The next consumer, also on the same
 * channel, has a prefetch of its own. */
void bh__consumer_cancel(bh__consumer *self, bh__context *context);
/* Ends consuming if abandoned messages take up the whole prefetch. */
void bh__consumer_check_abandoned(bh__consumer *self, bh__context *context);
/* Returns the number of messages that no caller took. */
int64_t bh__consumer_count_untaken(const bh__consumer *self, const bh__context *context);
/* Requeues the messages that no caller took. */
void bh__consumer_give_back_ready(bh__consumer *self, bh__context *context);
/* Requeues all unacknowledged messages at once. RabbitMQ 4.3 does not count basic.nack as a
 * failed delivery. */
void bh__consumer_give_back_all(const bh__consumer *self, bh__context *context);

#endif
