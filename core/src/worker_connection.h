/* Connection: one AMQP connection to the broker, its channels opened and closed, its failures in words. Internal. */
#ifndef BACKHOP_WORKER_CONNECTION_H
#define BACKHOP_WORKER_CONNECTION_H

#include "librabbitmq.h"
#include "worker_report.h"
#include "worker_uri.h"

/* Zero bytes are a closed one. */
typedef struct bh__connection {
    amqp_connection_state_t state; /* NULL: closed */
    int is_broken;                 /* of no more use; what it received stays readable until it is closed */
    int is_blocked;                /* connection.blocked: the broker reads no publish */
    int64_t sent_ms;               /* when a heartbeat was last sent by bh__connection_beat */
} bh__connection;

/* How to connect; borrowed. */
typedef struct bh__settings {
    const bh__uri *uri;
    const char *ca_file;        /* NULL: the system's CAs */
    int64_t connect_timeout_ms; /* for the socket, and again for TLS and the login */
    int64_t reply_timeout_ms;   /* for the broker's answer to a method */
} bh__settings;

/*
 * Opens a closed connection. `name` is what management shows. BH_ERR_CONNECTION, BH_ERR_TLS, BH_ERR_ACCESS,
 * BH_ERR_NO_MEMORY; after them it is closed.
 */
bh_status bh__connection_open(bh__connection *self, const bh__settings *settings, const char *name, bh__report *report);
/* From now on waits for the broker's answers no longer than a good-bye is worth; it has a state. */
void bh__connection_hurry(bh__connection *self);
/* Says good-bye where the broker still listens, and frees all. */
void bh__connection_close(bh__connection *self);
int bh__connection_is_open(const bh__connection *self);
/* Finds out, without reading, whether the broker has dropped the connection: then it is broken. */
void bh__connection_probe(bh__connection *self);
int bh__connection_fd(const bh__connection *self);
/* A string of server-properties, as far as `value` has room; "" where there is none. */
void bh__connection_property(const bh__connection *self, const char *name, char *value, size_t room);

/*
 * The next frame of a channel other than 0, from which connection.blocked, unblocked and close are taken. It lives
 * until the buffers of its channel are released. BH_ERR_TIMEOUT, BH_ERR_CONNECTION.
 */
bh_status bh__connection_frame(bh__connection *self, int64_t timeout_ms, amqp_frame_t *frame, bh__report *report);
/* Sends a heartbeat if one is due, without reading. */
void bh__connection_beat(bh__connection *self);

/*
 * What became of the last method: BH_OK, or the report of `what` that failed. A channel that the broker closed is
 * closed on this side too, a connection likewise. *code is the broker's reply code, 0 where it gave none, and may be
 * NULL. BH_ERR_ACCESS (403), BH_ERR_MISSING (404), BH_ERR_CLASH (405, 406), BH_ERR_CHANNEL, BH_ERR_CONNECTION.
 */
bh_status bh__connection_reply(bh__connection *self, amqp_channel_t channel, amqp_rpc_reply_t reply, const char *what,
                               int *code, bh__report *report);
/* The same for a channel.close that was read. */
bh_status bh__channel_closed(bh__connection *self, amqp_channel_t channel, const amqp_channel_close_t *close,
                             const char *what, bh__report *report);
/* For a failure of the library itself, a status below 0. */
bh_status bh__connection_failed(bh__connection *self, int status, const char *what, bh__report *report);

#endif
