/* Consumer: the channel that deliveries come on, what is unsettled there, and the acknowledgements. Internal. */
#ifndef BACKHOP_WORKER_CONSUME_H
#define BACKHOP_WORKER_CONSUME_H

#include "worker_message.h"

typedef struct bh__consumer {
    int is_open;      /* its channel */
    int is_consuming; /* the broker sends; it may be cancelled and the channel open still */
    int is_doubtful;  /* cancelled, and it is not known yet whether the broker has its messages again */
    amqp_channel_t channel;
    char tag[32];
    unsigned tag_count;  /* numbers the tags: no two are the same */
    uint64_t generation; /* of the channel: what came before is the broker's again */
    bh__assembler assembler;
    bh__queue arrived; /* to be offered */
    uint64_t next_tag; /* that the broker will send */
    /* what is unsettled on the channel, in order; each has a reference */
    bh_message *oldest;
    bh_message *newest;
    size_t held_count;
    bh_message **done; /* to be acknowledged; they are among those */
    size_t done_count;
    size_t done_capacity;
    int64_t flush_ms;  /* monotonic: when those behind one that is not done have to go; 0: there are none */
    size_t left_count; /* messages that stay unacknowledged: they take up the consumer's prefetch */
} bh__consumer;

/* Frees one that has ended. */
void bh__consumer_free(bh__consumer *self);

/* Begins to consume, on a new channel where there is none. As bh__worker_call. */
bh_status bh__worker_consume(bh_worker *self);
/* Finds out what a cancel meant, where that is not known. As bh__worker_call. */
bh_status bh__worker_resolve_cancel(bh_worker *self);
/* Ends consuming in order: nothing comes after it. */
void bh__worker_cancel(bh_worker *self);
/* A frame of the consume link, for a channel other than 0. */
void bh__worker_consume_frame(bh_worker *self, const bh__frame *frame, const amqp_method_t *method);
/* Forgets the channel and all that came on it, as the broker does. How many messages it will deliver again. */
int64_t bh__worker_end_consumer(bh_worker *self);
/* Gives back what nobody took, or all that is not settled: RabbitMQ 4.3 counts no basic.nack as a failed delivery. */
void bh__worker_give_back_ready(bh_worker *self);
void bh__worker_give_back_all(bh_worker *self);

/* Whether the broker waits for this message to be settled here. */
int bh__worker_holds(const bh_worker *self, const bh_message *message);
/* To be acknowledged, with the next flush. */
void bh__worker_acknowledge(bh_worker *self, bh_message *message);
/* basic.nack, or basic.reject, at once. */
void bh__worker_nack(bh_worker *self, bh_message *message, int requeue);
void bh__worker_reject(bh_worker *self, bh_message *message, int requeue);
/* The message stays unacknowledged for good. */
void bh__worker_leave_behind(bh_worker *self, bh_message *message);
/* Writes the acknowledgements; or only the one for all up to the first message that is not done, where others need not
 * go yet. */
void bh__worker_flush_acks(bh_worker *self);
void bh__worker_flush_acks_in_time(bh_worker *self, int64_t now_ms);
/* When they have to go; INT64_MAX: there are none. */
int64_t bh__worker_acks_due_ms(const bh_worker *self);
/* Messages that wait to be settled, or for their copies. */
int64_t bh__worker_count_unacknowledged(const bh_worker *self);

#endif
