/*
 * Worker: what its sources share. Internal.
 *
 *     callers      worker.c, worker_run.c           settings, start, take, settle, stop
 *     between      worker_shared                    the queues, under one mutex; the descriptor
 *     the thread   worker_thread                    what has to be done: connect, declare, consume, replay, drain
 *                  worker_pump                      one round of polling, reading, settling, publishing, writing
 *                  worker_connect, _declare, _replay   procedures: they pump until what they wait for is there
 *                  worker_consume, _settle, _publish   what came, what becomes of it, the copies on their way
 *     the wire     worker_link, _socket, _lookup, _message, _content
 */
#ifndef BACKHOP_WORKER_INTERNAL_H
#define BACKHOP_WORKER_INTERNAL_H

#include "worker_clock.h"
#include "worker_consume.h"
#include "worker_content.h"
#include "worker_link.h"
#include "worker_message.h"
#include "worker_publish.h"
#include "worker_shared.h"

#include <backhop/worker.h>

enum {
    BH__CHANNEL_PUBLISH = 1, /* the first of the publish link's */
    BH__CHANNEL_REPLAY = 1,  /* of the consume link; the consumer's are all above these */
    BH__CHANNEL_DECLARE = 2,
    BH__CHANNEL_MAX = 16
};

/* How far the thread is. Procedures are interrupted by a stop, by its limit, by nothing. */
typedef enum bh__stage { BH__WORKING, BH__DRAINING, BH__LEAVING } bh__stage;

/* One of the worker's connections, and when to try it again. */
typedef struct bh__connection {
    bh__link link;
    const char *role;   /* for those who look at the broker's connections */
    size_t next_uri;    /* to try */
    const bh__uri *uri; /* that it is connected to */
    bh__back_off back_off;
} bh__connection;

struct bh_worker {
    /* settings: nobody changes them while the thread runs */
    bh_policy *policy;
    bh_topology *topology;
    bh_policy *back_off;
    bh_history *reading; /* legacy counter and wait queues, for every history */
    bh__uri *uris;
    size_t uri_count;
    size_t uri_capacity;
    char *ca_file; /* NULL: the system's */
    int64_t mode;  /* a bh_mode */
    int64_t prefetch;
    int64_t tells_retries;
    int64_t connect_timeout_ms;
    int64_t confirm_timeout_ms;
    bh__report report; /* of the caller's last failed call */

    bh__shared shared;

    /* the thread's own */
    bh__connection consume;
    bh__connection publish;
    bh__consumer consumer;
    bh__publisher publisher;
    bh__assembler replayed;
    bh_message *replay_message; /* that basic.get brought */
    int awaits_replay;
    int has_replay_channel;
    int is_declared;    /* the topology, as the mode says */
    int is_ready;       /* connected, declared, consuming: told */
    bh__back_off setup; /* of declaring and consuming */
    bh__stage stage;
    int has_settled;       /* callers, just now: more is likely to follow at once */
    int is_woken;          /* from its last poll, not by a socket */
    int64_t settled_ms;    /* when it last carried out what was settled */
    bh_delivery *delivery; /* of the message in hand, as are history and plan */
    bh_history *history;
    bh_plan *plan;
    char random[BH_PLAN_RANDOM_BYTES * 8]; /* drawn, and not used from random_used on */
    size_t random_used;
    bh__report problem; /* of the last procedure that failed */
};

/* ---------------------------------------------------------------------------------------------------- worker_thread */

/* What the thread runs. */
void *bh__worker_thread(void *worker);
/* One round of what keeps it going, the consume connection aside: buries, connects, declares, and pumps until then. */
void bh__worker_keep_going(bh_worker *self, int64_t until_ms);
/* Whether procedures have to end, because the worker is to stop. */
int bh__worker_is_interrupted(const bh_worker *self);
/* Notes a failure, and how long to wait for the next attempt: the ms are returned. */
int64_t bh__worker_back_off(bh_worker *self, bh__back_off *state);
/* `size` random bytes; NULL: the system has none. */
const char *bh__worker_draw(bh_worker *self, size_t size);
/* Tells an event; where there is no memory for it, it counts as missed. */
void bh__worker_tell(bh_worker *self, bh_event_kind kind, bh_status status, bh_bytes text, bh_bytes id,
                     int64_t attempts, int64_t delay_ms, int64_t count);

/* ------------------------------------------------------------------------------------------------------ worker_pump */

/* One round: settles, publishes, acknowledges, writes; waits for something to happen until then at most; reads. */
void bh__worker_pump(bh_worker *self, int64_t until_ms);

/* --------------------------------------------------------------------------------------------------- worker_connect */

/* Opens the connection at the next URI. BH_ERR_CONNECTION, BH_ERR_TLS, BH_ERR_ACCESS, BH_ERR_BROKER, BH_ERR_NO_MEMORY,
 * in self->problem. */
bh_status bh__worker_connect(bh_worker *self, bh__connection *connection);
/* Says goodbye and closes it. */
void bh__worker_disconnect(bh_worker *self, bh__connection *connection);

/* What a call's reply was, beside the status. */
typedef struct bh__answer {
    amqp_method_t method; /* until the next call; id 0: none */
    int code;             /* of channel.close; 0: none */
    char text[256];       /* of channel.close or connection.close */
} bh__answer;

/*
 * Sends a method (0: none) and waits for its reply, or one of two. BH_ERR_CONNECTION, BH_ERR_NO_MEMORY; where the
 * broker closed the channel instead: BH_ERR_ACCESS, BH_ERR_MISSING, BH_ERR_CLASH, BH_ERR_CHANNEL. `what` was done, for
 * self->problem.
 */
bh_status bh__worker_call(bh_worker *self, bh__link *link, amqp_channel_t channel, amqp_method_number_t method,
                          void *arguments, amqp_method_number_t reply, amqp_method_number_t other, const char *what,
                          bh__answer *out);
/* Opens and closes a channel, as calls. */
bh_status bh__worker_open_channel(bh_worker *self, bh__link *link, amqp_channel_t channel, bh__answer *out);
bh_status bh__worker_close_channel(bh_worker *self, bh__link *link, amqp_channel_t channel, bh__answer *out);
/* The status for a channel.close, which is answered; its words into the report. */
bh_status bh__worker_channel_closed(bh__link *link, amqp_channel_t channel, const amqp_channel_close_t *close,
                                    const char *what, bh__report *report);

/* --------------------------------------------------------------------------------------------------- worker_declare */

/* Makes or checks the topology, as the mode says. BH_ERR_CLASH, BH_ERR_MISSING, BH_ERR_ACCESS, BH_ERR_BROKER,
 * BH_ERR_CHANNEL, BH_ERR_CONNECTION, BH_ERR_NO_MEMORY, in self->problem. */
bh_status bh__worker_declare(bh_worker *self);
/* Whether the work queue is there. BH_ERR_MISSING. */
bh_status bh__worker_find_queue(bh_worker *self);
/* Makes the rung of this delay. */
bh_status bh__worker_declare_rung(bh_worker *self, int64_t wait_ms);

/* ---------------------------------------------------------------------------------------------------- worker_settle */

/* Reads delivery and history of a message. BH_ERR_NO_MEMORY, BH_ERR_CHANNEL (malformed). */
bh_status bh__worker_read(const bh_worker *self, const bh_message *message, bh_delivery *delivery, bh_history *history);
/* The same into self->delivery and self->history, for a plan on this connection, and its random bytes. BH_ERR_STATE:
 * the system has none. */
bh_status bh__worker_read_in_hand(bh_worker *self, const bh_message *message, bh_bytes *random);
/* As bh_worker_settle, with what bh_worker_fail noted. */
bh_status bh__worker_settle(bh_worker *self, bh_message *message, bh_outcome outcome);
/* Carries out what callers have settled. */
void bh__worker_settle_all(bh_worker *self);
/* Parks a message that has crashed its consumers too often. Whether it did. */
int bh__worker_guard(bh_worker *self, bh_message *message);

/* ---------------------------------------------------------------------------------------------------- worker_replay */

/* Sends parked messages back, one after the other, and tells how it went. */
void bh__worker_replay(bh_worker *self, int64_t most);
/* A frame of the consume link, for the channel of replays. */
void bh__worker_replay_frame(bh_worker *self, const bh__frame *frame, const amqp_method_t *method);

#endif
