/*
 * Runner: the worker's thread, which keeps the engine going; and its procedures. A procedure pumps until what it waits for
 * is there, so that nothing else stands still meanwhile. Internal.
 *
 *     thread.c       the loop: connects, sets up, drains, leaves
 *     connect.c      opens a connection at a URI: look-up, socket, TLS, login
 *     call.c         a method, and its reply
 *     declare.c      makes or checks the topology
 *     consume.c      opens the publisher's channels; begins, looks after and ends consuming
 *     replay.c       sends parked messages back
 */
#ifndef BACKHOP_WORKER_PROCEDURES_RUNNER_H
#define BACKHOP_WORKER_PROCEDURES_RUNNER_H

#include "engine/engine.h"

#include <backhop/declaring.h>

enum {
    BH__CHANNEL_DECLARE =
        2, /* of the consume link, as BH__CHANNEL_GET and _PROBE; the consumer's are all above these */
    BH__FIRST_CONSUME_CHANNEL = 4,
    BH__CHANNEL_MAX = 16
};

typedef struct bh__runner {
    bh__engine engine;
    bh_declaring *declaring; /* of the settings' topology */
    bh_declared *declared;   /* of a relay: what is there for all its work queues */
    size_t next_uri;         /* that the consume connection tries */
    int has_been_ready;      /* in this run */
    size_t hopeless_count;   /* failures before that, one after the other, of a kind that does not mend itself */
    int has_given_up;        /* the run ended for these */
    bh__report problem;      /* of the last procedure that failed */
} bh__runner;

/* BH_ERR_NO_MEMORY. */
bh_status bh__runner_init(bh__runner *self, const bh_worker *worker, const bh__settings *settings,
                          bh__mailbox *mailbox);
void bh__runner_free(bh__runner *self);
/* Before the thread starts. As bh__context_begin. */
bh_status bh__runner_begin(bh__runner *self);
/* What the thread runs. Its last event, BH_EVENT_DRAINED, says how it ended; so does `problem` then. */
void *bh__runner_thread(void *runner);
/* One round of what keeps it going, the consume connection aside: buries, connects, declares, and pumps until then. */
void bh__runner_keep_going(bh__runner *self, int64_t until_ms);

/* ------------------------------------------------------------------------------------------------------------ call.c */

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
bh_status bh__call(bh__runner *self, bh__link *link, amqp_channel_t channel, amqp_method_number_t method,
                   void *arguments, amqp_method_number_t reply, amqp_method_number_t other, const char *what,
                   bh__answer *out);
/* The same on an answer that has its own time limit, without looking what it is: for the beginning and the end of a
 * connection. */
bh_status bh__call_within(bh__runner *self, bh__link *link, amqp_channel_t channel, amqp_method_number_t method,
                          void *arguments, amqp_method_number_t reply, amqp_method_number_t other, int64_t timeout_ms);
/* Opens and closes a channel, as calls. */
bh_status bh__call_open_channel(bh__runner *self, bh__link *link, amqp_channel_t channel, bh__answer *out);
bh_status bh__call_close_channel(bh__runner *self, bh__link *link, amqp_channel_t channel, bh__answer *out);

/* --------------------------------------------------------------------------------------------------------- connect.c */

/* Opens the connection at this URI. BH_ERR_CONNECTION, BH_ERR_TLS, BH_ERR_ACCESS, BH_ERR_BROKER, BH_ERR_NO_MEMORY, in
 * self->problem. */
bh_status bh__connect(bh__runner *self, bh__connection *connection, const bh__uri *uri);
/* Says goodbye and closes it. */
void bh__disconnect(bh__runner *self, bh__connection *connection);
/* Whether both connections, which are open, lead to one broker: same vhost, same cluster. */
int bh__is_one_broker(const bh__runner *self);

/* --------------------------------------------------------------------------------------------------------- declare.c */

/* Makes or checks the topology, as the mode says. BH_ERR_CLASH, BH_ERR_MISSING, BH_ERR_ACCESS, BH_ERR_BROKER,
 * BH_ERR_CHANNEL, BH_ERR_CONNECTION, BH_ERR_NO_MEMORY, in self->problem. */
bh_status bh__declare(bh__runner *self);
/* Whether the work queue is there. BH_ERR_MISSING. */
bh_status bh__find_queue(bh__runner *self);
/* Looks for each work queue of a relay that is wanted (places), and makes or checks its parked queue and its way back, as the
 * mode says. What is missing is told where that is news, and is no error; but where all is verified, what is missing of the
 * queues that the settings name. BH_ERR_CONNECTION, BH_ERR_NO_MEMORY, and those of bh__declare, in self->problem. */
bh_status bh__look_for_queues(bh__runner *self);
/* Makes the rung of this delay. */
bh_status bh__declare_rung(bh__runner *self, int64_t wait_ms);

/* --------------------------------------------------------------------------------------------------------- consume.c */

/* Opens those of the publisher's channels that are not open. As bh__call. */
bh_status bh__open_publisher(bh__runner *self);
/* Begins to consume, on a new channel where there is none. As bh__call. */
bh_status bh__consume(bh__runner *self);
/* Finds out what a cancel meant, where that is not known. As bh__call. */
bh_status bh__resolve_cancel(bh__runner *self);
/* Ends consuming in order: nothing comes after it. */
void bh__cancel(bh__runner *self);

/* ---------------------------------------------------------------------------------------------------------- replay.c */

/* Sends parked messages back, one after the other, and tells how it went. */
void bh__replay(bh__runner *self, int64_t most);

#endif
