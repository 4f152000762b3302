/* Publisher: the copies on their way to the broker, and its confirms. Internal. */
#ifndef BACKHOP_WORKER_PUBLISH_H
#define BACKHOP_WORKER_PUBLISH_H

#include "worker_message.h"

/* When something that failed is to be tried again. Zero bytes: now. */
typedef struct bh__back_off {
    int64_t failures; /* one after the other */
    int64_t wait_ms;  /* the last one */
    int64_t due_ms;   /* monotonic */
} bh__back_off;

/* A copy that has to be published, and its original. */
typedef struct bh__publication {
    struct bh__publication *next;
    bh_message *message; /* the original; a reference */
    bh_action action;    /* BH_ACTION_REPLAY: the original is a parked message, which bh__worker_replay acknowledges */
    int mandatory;
    int64_t attempts;
    int64_t delay_ms;
    int64_t rung_ms; /* that has to be declared first; 0: none */
    int is_returned; /* by the broker, which will confirm it still */
    int is_suspect;  /* the broker closed the channel with this one in flight: goes alone on a channel */
    bh__back_off back_off;
    int64_t sent_ms;
    bh_bytes exchange;
    bh_bytes routing_key;
    bh_bytes properties; /* as on the wire */
    bh_bytes id;         /* a part of those */
    bh_bytes reason;     /* of parking */
    char data[];
} bh__publication;

typedef struct bh__publications {
    bh__publication *first;
    bh__publication *last;
    size_t count;
} bh__publications;

typedef enum bh__replay_result { BH__REPLAY_PENDING, BH__REPLAY_WENT, BH__REPLAY_REFUSED } bh__replay_result;

/* A channel with confirms, and the copies that are not confirmed on it. */
typedef struct bh__confirms {
    amqp_channel_t channel;
    int is_open;
    bh__publication **sent; /* a ring by delivery tag, from first to next - 1; NULL: confirmed */
    size_t capacity;        /* a power of two */
    uint64_t first;
    uint64_t next;
    size_t sent_count; /* that are not confirmed */
    bh__assembler returned;
    char return_text[264]; /* of the last basic.return: code and text */
} bh__confirms;

/* A broker works on what a channel publishes in one process: with one channel alone that would be the bound. */
enum { BH__PUBLISH_CHANNELS = 2 };

typedef struct bh__publisher {
    bh__confirms channels[BH__PUBLISH_CHANNELS]; /* copies take turns */
    size_t turn;                                 /* whose it is */
    bh__publications due;                        /* to be sent */
    bh__publications waiting;                    /* not before their due_ms */
    int64_t unblocked_ms;                        /* monotonic; no confirm was possible before */
    int64_t *rungs;                              /* on demand, that were declared, in ms */
    size_t rung_count;
    size_t rung_capacity;
    int64_t wanted_rung_ms; /* that the first one due needs; 0: none */
    bh__buffer scratch;
    bh__replay_result replay; /* what became of the last replayed copy */
    bh_status replay_status;
} bh__publisher;

/* Frees one without copies. */
void bh__publisher_free(bh__publisher *self);

/* Whether all its channels are open; opens those that are not. As bh__worker_call. */
int bh__publisher_is_open(const bh__publisher *self);
bh_status bh__worker_open_publisher(bh_worker *self);
/* A frame of the publish link, for a channel other than 0. */
void bh__worker_publish_frame(bh_worker *self, const bh__frame *frame, const amqp_method_t *method);
/* The connection is gone: what was not confirmed is to be sent again. */
void bh__worker_end_publisher(bh_worker *self);
/* Queues the plan's copy of the message. BH_ERR_NO_MEMORY, BH_ERR_CHANNEL (the original is malformed), BH_ERR_FRAME. */
bh_status bh__worker_queue_copy(bh_worker *self, bh_message *message);
/* Sends what is due; looks after what was not confirmed in time. */
void bh__worker_advance_publisher(bh_worker *self, int64_t now_ms);
/* When bh__worker_advance_publisher has to be called next; INT64_MAX: never. */
int64_t bh__worker_publisher_due_ms(const bh_worker *self);
/* Gives up those whose original is the broker's again. */
void bh__worker_drop_unwanted(bh_worker *self);
/* How many are not published; and gives these up. */
size_t bh__worker_count_copies(const bh_worker *self);
void bh__worker_drop_copies(bh_worker *self);
/* The rung is there; or it cannot be made, and what needs it waits. */
void bh__worker_note_rung(bh_worker *self, int64_t rung_ms);
void bh__worker_miss_rung(bh_worker *self, int64_t rung_ms, bh_status status, bh_bytes text);

#endif
