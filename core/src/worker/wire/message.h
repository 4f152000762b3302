/* Message: a delivery and its settlement. Internal. */
#ifndef BACKHOP_WORKER_WIRE_MESSAGE_H
#define BACKHOP_WORKER_WIRE_MESSAGE_H

#include <backhop/adapter/history.h>
#include <backhop/breaker.h>
#include <backhop/worker.h>
#include <stdatomic.h>

typedef enum bh__settling { BH__OPEN, BH__BEING_SETTLED, BH__SETTLED } bh__settling;

struct bh_message {
    atomic_int references; /* of the caller that took it, and of the worker */
    const bh_worker *worker;
    bh_message *next; /* in a bh__message_list */
    uint64_t delivery_tag;
    int redelivered;
    int has_random;                          /* `random` is drawn */
    char random[BH_HISTORY_ID_RANDOM_BYTES]; /* of the id, if the publisher gave none */
    bh_bytes exchange;
    bh_bytes routing_key;
    bh_bytes properties; /* property flags and list, as on the wire */
    bh_bytes body;
    /* written by the caller that settles it, before it is handed over */
    atomic_int settling; /* a bh__settling */
    bh_outcome outcome;
    int64_t retry_after_ms;
    bh_policy *policy; /* owned; NULL: the worker's */
    char *error;       /* owned; NULL: none */
    size_t error_size;
    char *error_class; /* owned; NULL: none */
    size_t error_class_size;
    char traceparent[56]; /* "": none */
    int64_t taken_us;     /* monotonic: when it was taken; later the time in hand. 0: not measured */
    bh_permit permit;     /* of the breaker, for its handler; generation 0: none */
    int64_t permit_ms;    /* monotonic: when it was granted */
    /* used by the worker's thread */
    int64_t entry;         /* in the ledger */
    int64_t channel;       /* its channel, in the ledger */
    int64_t arrived_ms;    /* monotonic */
    int is_reported;       /* the outcome of its handler was emitted */
    int is_guarded;        /* the guard decided on it, before a handler got it */
    struct bh__copy *copy; /* owned, one allocation; NULL: no copy was decided */
    size_t body_filled;
    char data[]; /* the bytes above, each with a zero byte after it */
};

void bh__message_keep(bh_message *self);
/* Copies the text of its error. BH_ERR_NO_MEMORY. */
bh_status bh__message_set_error(bh_message *self, bh_bytes error);
/* Copies the class of its error. BH_ERR_NO_MEMORY. */
bh_status bh__message_set_error_class(bh_message *self, bh_bytes error_class);

/* A first-in, first-out list of messages. */
typedef struct bh__message_list {
    bh_message *first;
    bh_message *last;
    size_t count;
} bh__message_list;

void bh__message_list_push(bh__message_list *self, bh_message *message);
bh_message *bh__message_list_pop(bh__message_list *self);
/* Frees the references in the list. */
void bh__message_list_clear(bh__message_list *self);
/* Moves all messages of `from` to the end of the list. */
void bh__message_list_append(bh__message_list *self, bh__message_list *from);

#endif
