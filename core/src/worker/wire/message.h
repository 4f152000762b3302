/* Message: one that the broker sent, and what is to become of it. Internal. */
#ifndef BACKHOP_WORKER_WIRE_MESSAGE_H
#define BACKHOP_WORKER_WIRE_MESSAGE_H

#include <backhop/worker.h>
#include <stdatomic.h>

typedef enum bh__settling { BH__OPEN, BH__BEING_SETTLED, BH__SETTLED } bh__settling;

struct bh_message {
    atomic_int references; /* of who took it, and of the worker */
    const bh_worker *worker;
    bh_message *next; /* in one of the worker's queues */
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
    bh_policy *policy; /* owned; NULL: the worker's */
    char *error;       /* owned; NULL: none */
    size_t error_size;
    char *error_class;    /* owned; NULL: none */
    char traceparent[56]; /* "": none */
    int64_t taken_us;     /* monotonic, when it was taken; then for how long it was in hand. 0: nobody asks */
    /* of the worker's thread */
    int64_t entry;         /* its number in the ledger */
    int64_t channel;       /* and that of the channel that it came on */
    int is_told;           /* what its handler did */
    int is_guarded;        /* the guard decided on it, before a handler saw it */
    struct bh__copy *copy; /* owned, in one piece; NULL: none was decided on */
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

#endif
