/*
 * Runner: the worker's thread and its procedures. A procedure pumps the engine until its answer
 * arrives, so that everything else continues. Internal.
 *
 *     thread.c       the loop: works, drains, closes
 *     reconnect.c    opens lost connections after a back-off
 *     prepare.c      opens the publisher's channels, declares the topology, consumes
 *     connect.c      opens a connection: look-up, socket, TLS, login
 *     call.c         sends a method and waits for its reply
 *     declare.c      declares or verifies the topology
 *     consume.c      begins and ends consuming
 *     replay.c       replays parked messages
 *     watch.c        checks once a minute that retries can come back
 */
#ifndef BACKHOP_WORKER_PROCEDURES_RUNNER_H
#define BACKHOP_WORKER_PROCEDURES_RUNNER_H

#include "worker/engine/engine.h"

#include <backhop/adapter/declaring.h>

enum {
    BH__CHANNEL_DECLARE = 2, /* of the consume link, like BH__CHANNEL_GET and _PROBE; below the consumer's channels */
    BH__FIRST_CONSUME_CHANNEL = 4,
    BH__CHANNEL_MAX = 16
};

typedef struct bh__runner {
    bh__engine engine;
    bh__context *context;    /* of the engine */
    bh_declaring *declaring; /* of the settings' topology */
    bh_declared *declared;   /* of a relay: the parts that exist for all its work queues */
    size_t next_uri;         /* of the next attempt to consume */
    int has_been_ready;      /* in this run */
    size_t hopeless_count;   /* failures in a row before it that no retry can repair (bh__needs_a_person) */
    int has_given_up;        /* the run ended because of these */
    int64_t watched_ms;      /* monotonic: the last bh__watch */
    int64_t reread_ms;       /* monotonic: when bh__watch reads the unroutable queue again */
    bh__report problem;      /* of the last procedure that failed */
} bh__runner;

/* Makes a runner; free it with bh__runner_free. BH_ERR_NO_MEMORY. */
bh_status bh__runner_init(bh__runner *self, const bh_worker *worker, const bh__settings *settings,
                          bh__mailbox *mailbox);
void bh__runner_free(bh__runner *self);
/* Prepares a run, before the thread starts. Errors as bh__context_begin. */
bh_status bh__runner_begin(bh__runner *self);
/* Runs the thread. If the run failed, its last event, BH_EVENT_DRAINED, has the reason in
 * `problem`. */
void *bh__runner_thread(void *runner);
/* Reconnects, declares and pumps once, until `until_ms` at most. Does not open the consume
 * connection. */
void bh__runner_keep_going(bh__runner *self, int64_t until_ms);
/* Reconnects the publisher, and prepares the topology, as far as that is due. */
void bh__runner_keep_up(bh__runner *self);
/* Runs one round of the engine and blocks until `until_ms` at most. Does not block if the engine's
 * state changed since `before`: what changed must be looked at first. */
void bh__runner_pump(bh__runner *self, unsigned before, int64_t until_ms);

/* ---------------------------------------------------------------------------------- reconnect.c */

/* Opens the consume connection if it is closed and its back-off is over. */
void bh__reconnect_consumer(bh__runner *self);
/* Closes connections that broke, and opens the publish connection, to the broker of the consume
 * connection. */
void bh__reconnect_publisher(bh__runner *self);
/* Returns when one of these has something to do, monotonic; INT64_MAX: never. */
int64_t bh__reconnect_due_ms(const bh__runner *self);
/* Returns 1 if both connections are open. */
int bh__are_open(const bh__runner *self);
/* Counts a failure, whose reason is self->problem, and emits BH_EVENT_UNAVAILABLE. */
void bh__emit_failure(bh__runner *self, const bh__connection *connection, bh_status status, int64_t wait_ms);

/* ------------------------------------------------------------------------------------ prepare.c */

/* Opens the publisher's channels, declares the topology and consumes, if these are missing and
 * the back-off is over. Then declares the rungs that copies need, and checks the work queues of
 * a relay. */
void bh__prepare(bh__runner *self);
/* Returns when bh__prepare has something to do, monotonic; INT64_MAX: never. */
int64_t bh__prepare_due_ms(const bh__runner *self);
/* Declares the rungs that copies need. These copies wait in the ledger, and others do not. */
void bh__declare_wanted_rungs(bh__runner *self);

/* --------------------------------------------------------------------------------------- call.c */

/* The reply to a call, in addition to the status. */
typedef struct bh__answer {
    amqp_method_t method; /* until the next call; id 0: none */
    int code;             /* of channel.close; 0: none */
    char text[256];       /* of channel.close or connection.close */
} bh__answer;

/*
 * Sends a method (0: none) and waits for its reply, or for another one.
 * what: the action, for self->problem.
 * Errors: BH_ERR_CONNECTION; BH_ERR_NO_MEMORY; if the broker closed the channel: BH_ERR_ACCESS,
 * BH_ERR_MISSING, BH_ERR_CLASH, BH_ERR_CHANNEL.
 */
bh_status bh__call(bh__runner *self, bh__link *link, amqp_channel_t channel, amqp_method_number_t method,
                   void *arguments, amqp_method_number_t reply, amqp_method_number_t other, const char *what,
                   bh__answer *out);
/* Like bh__call, with a time limit and without a look at the reply. For login and logout. */
bh_status bh__call_within(bh__runner *self, bh__link *link, amqp_channel_t channel, amqp_method_number_t method,
                          void *arguments, amqp_method_number_t reply, amqp_method_number_t other, int64_t timeout_ms);
/* Open and close a channel. Errors as bh__call. */
bh_status bh__call_open_channel(bh__runner *self, bh__link *link, amqp_channel_t channel, bh__answer *out);
bh_status bh__call_close_channel(bh__runner *self, bh__link *link, amqp_channel_t channel, bh__answer *out);

/* ------------------------------------------------------------------------------------ connect.c */

/* Opens the connection at this URI. BH_ERR_CONNECTION, BH_ERR_TLS, BH_ERR_ACCESS, BH_ERR_BROKER,
 * BH_ERR_NO_MEMORY; the reason is in self->problem. */
bh_status bh__connect(bh__runner *self, bh__connection *connection, const bh__uri *uri);
/* Closes the connection with connection.close. */
void bh__disconnect(bh__runner *self, bh__connection *connection);
/* Returns 1 if both open connections lead to one vhost of one cluster. */
int bh__is_one_broker(const bh__runner *self);

/* ------------------------------------------------------------------------------------ declare.c */

/* Declares or verifies the topology, according to the mode. BH_ERR_CLASH, BH_ERR_MISSING,
 * BH_ERR_ACCESS, BH_ERR_BROKER, BH_ERR_CHANNEL, BH_ERR_CONNECTION, BH_ERR_NO_MEMORY; the reason
 * is in self->problem. */
bh_status bh__declare(bh__runner *self);
/* Returns BH_OK if the work queue exists. BH_ERR_MISSING; others as bh__call. */
bh_status bh__find_queue(bh__runner *self);
/*
 * Checks each work queue of a relay that is due. Declares or verifies its parked queue and its
 * return binding, according to the mode.
 * Missing parts are no error: BH_EVENT_UNAVAILABLE reports them once. With BH_MODE_VERIFY they are
 * errors, for queues that the settings name. Errors as bh__declare.
 */
bh_status bh__check_work_queues(bh__runner *self);
/* Looks for the return exchange, and binds or declares it again (bh_declaring_look). BH_ERR_MISSING
 * if the exchange was missing; others as bh__declare. */
bh_status bh__check_topology(bh__runner *self);
/* Declares the rung of this delay. */
bh_status bh__declare_rung(bh__runner *self, int64_t wait_ms);

/* ------------------------------------------------------------------------------------ consume.c */

/* Opens the closed channels of the publisher. Errors as bh__call. */
bh_status bh__open_publisher(bh__runner *self);
/* Consumes, on a new channel if none is open. Errors as bh__call. */
bh_status bh__consume(bh__runner *self);
/* Finds out if the broker requeued the messages in hand after a cancel. Errors as bh__call. */
bh_status bh__resolve_cancel(bh__runner *self);
/* Cancels the consumer: no delivery arrives after this. */
void bh__cancel(bh__runner *self);

/* ------------------------------------------------------------------------------------- replay.c */

/* Replays parked messages, one after the other, and emits BH_EVENT_REPLAYED. */
void bh__replay(bh__runner *self, int64_t most);
/* Replays the messages of this work queue that the broker could not route back to it. Emits
 * BH_EVENT_REPLAYED if there were some. Returns the number of other messages that it read. */
int64_t bh__replay_own_unroutable(bh__runner *self);

/* -------------------------------------------------------------------------------------- watch.c */

/* Checks once a minute that retries can come back. Replays retries from the unroutable queue, less
 * often if it has many messages of other work queues (bh_replay_pause_ms). */
void bh__watch(bh__runner *self);
/* Returns when bh__watch has something to do, monotonic; INT64_MAX: never. */
int64_t bh__watch_due_ms(const bh__runner *self);

#endif
