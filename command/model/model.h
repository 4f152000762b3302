/*
 * Model: RabbitMQ in memory, for tests. It has no clock, sockets or threads: the caller passes the
 * time and the bytes of each connection. So a test can run it under virtual time, and `backhop
 * model` can run it on a socket.
 *
 *     model *broker = NULL;
 *     model_new(&broker, &(model_settings){.version = "4.3"});
 *     model_link *link = model_connect(broker);
 *     model_receive(link, bytes, size);              what the client wrote
 *     bh_bytes answer = model_output(link);          what the client reads
 *     model_sent(link, answer.size);
 *     model_advance(broker, model_next_ms(broker));  runs the next timer: a TTL, a heartbeat
 *
 * It implements AMQP 0-9-1 as RabbitMQ 3.10, 4.0 and 4.3 do; versions.c lists the differences. The
 * scripts of tests/vectors/broker run on it and on the real brokers.
 */
#ifndef BACKHOP_COMMAND_MODEL_H
#define BACKHOP_COMMAND_MODEL_H

#include <backhop/bytes.h>
#include <backhop/status.h>

#include <stddef.h>
#include <stdint.h>

typedef struct model model;
/* The broker's end of a client's connection. */
typedef struct model_link model_link;

/* An event of a message, for a test that keeps account of it. */
typedef enum model_fate {
    MODEL_FATE_PUBLISHED, /* by a client: a queue has it */
    MODEL_FATE_ADDED,     /* to a queue */
    MODEL_FATE_REMOVED,   /* from a queue */
    MODEL_FATE_RETURNED, /* to its queue, though its client settled nothing: a channel ended, or it was held too long */
    MODEL_FATE_DELETED,  /* with its queue, or purged */
    MODEL_FATE_DROPPED,  /* a dead letter that no queue has */
    MODEL_FATE_DOUBLED   /* a dead letter that is sent again though a queue has it */
} model_fate;

/* queue: its name; "" if it is published. The callback must not call the model. */
typedef void model_watch(void *data, model_fate fate, bh_bytes queue, bh_bytes body);

/* All fields 0: the newest version, no choices, now_ms 0 is the epoch. */
typedef struct model_settings {
    const char *version;       /* "3.10", "4.0" or "4.3"; NULL: "4.3" */
    int64_t epoch_ms;          /* the time since the epoch when the model's time is 0; for x-death */
    const unsigned char *tape; /* choices that RabbitMQ may make either way: late or multiple confirms, order of
                                * consumers; borrowed. After its end, and without a tape, each choice is the first. */
    size_t tape_size;
    int64_t consumer_timeout_ms; /* 0: 30 minutes */
    int64_t resend_ms;           /* after which unconfirmed dead letters are sent again; 0: 180 s */
    model_watch *watch;          /* NULL: none */
    void *watch_data;
} model_settings;

/* Creates a broker with the vhost "/" and the user guest, whose password is guest.
 * Errors: BH_ERR_NO_MEMORY; BH_ERR_ARGUMENT if the version is unknown. */
bh_status model_new(model **out, const model_settings *settings);
void model_free(model *self);

/* Returns the model's time, in ms. */
int64_t model_now_ms(const model *self);
/* Returns the time of the next timer, in ms; INT64_MAX: there is none. */
int64_t model_next_ms(const model *self);
/* Runs the timers until now_ms, each at its own time, in order. Time never goes back. */
void model_advance(model *self, int64_t now_ms);
/* Returns when model_beat has to be called next, in wall_ms; INT64_MAX: never. Heartbeats follow
 * the wall clock, because a client's clock does not skip. */
int64_t model_next_beat_ms(const model *self);
/* Sends the heartbeats that are due, and cuts connections that were silent for two heartbeats.
 * While model_reads() is 0, silence does not count. model_advance sends no heartbeats.
 *
 * wall_ms: a monotonic time of the caller, which may be the model's own. */
void model_beat(model *self, int64_t wall_ms);
/* Returns 1 if only a timer or a client can change something: no message is ready for a consumer,
 * unacknowledged or unconfirmed. `backhop model` skips to the next timer then. */
int model_is_idle(const model *self);

/* A client connected. NULL: no memory, or the broker is stopped. */
model_link *model_connect(model *self);
/* The client wrote these bytes, in pieces of any size. */
void model_receive(model_link *link, const char *data, size_t size);
/* Returns 1 if the broker reads from the client. In a memory alarm it does not read from one that
 * publishes. */
int model_reads(const model_link *link);
/* Returns the bytes for the client; valid until the next call with this model. */
bh_bytes model_output(const model_link *link);
/* The client's socket took the first `size` bytes of the output. */
void model_sent(model_link *link, size_t size);
/* Returns 1 if the broker closes the connection once its output is sent. */
int model_is_closing(const model_link *link);
/* The connection is gone: closed by either side, or cut. Frees the link. */
void model_disconnect(model_link *link);

/*
 * Executes a command that an operator or a fault would: one line of words, quoted as a shell does.
 * Appends the answer to `answer` (lines), or the reason of a failure.
 *
 *     stop | kill                     closes all connections; kill without a word. Durable objects and persistent
 *                                     messages stay, unacknowledged ones are ready again
 *     start                           accepts connections again
 *     alarm on|off                    a memory alarm
 *     list connections                one line each: its number, client-provided name, state
 *     list queues [VHOST]             name, type, ready, unacknowledged, consumers, delayed or in dead-lettering
 *     close NUMBER|NAME|all [CODE TEXT]   closes connections, as the management API does (320 CONNECTION_FORCED)
 *     cut NUMBER|NAME|all             cuts connections without a word
 *     delete queue|exchange VHOST NAME
 *     delete queues [VHOST]           all, or those of a vhost
 *     purge VHOST QUEUE
 *     vhost add|delete NAME
 *     user USER PASSWORD [TAG...]     adds or changes a user
 *     user tags USER [TAG...]         changes the tags
 *     user delete USER
 *     permissions VHOST USER CONFIGURE WRITE READ
 *     policy VHOST NAME PATTERN queues|exchanges|all PRIORITY JSON    (operator-policy: the same)
 *     policy delete VHOST NAME
 *     resend MS                       sets after which time unconfirmed dead letters are sent again
 *     consumer-timeout MS             sets how long a consumer may hold a message, in queues without a timeout of their own
 *     max-message BYTES               sets the most bytes of a message's body
 *     cluster NAME                    sets the cluster's name
 *     leader VHOST QUEUE              a quorum queue's leader moves: what is unacknowledged is ready again
 *     confirms on|off                 off: the broker stores messages, and no confirm arrives
 *     minority on|off                 on: the node is alone. Quorum queues deliver and confirm nothing. Each message that
 *                                     is published then is stored or lost, as the tape chooses
 *     now                             the model's time in ms
 *     advance MS                      runs the timers of the next MS ms
 *
 * Returns BH_OK; BH_ERR_ARGUMENT if the command is unknown or its words are wrong; BH_ERR_MISSING;
 * BH_ERR_NO_MEMORY.
 */
typedef struct bh__report bh__report;
bh_status model_control(model *self, const char *line, struct bh__report *answer);

#endif
