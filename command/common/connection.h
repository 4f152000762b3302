/*
 * Connection: one AMQP connection that waits for its answers, on the library's own wire layer, so
 * that messages are read and copied byte for byte.
 *
 *     connection *broker;
 *     if (connection_open(&broker, &options, "parked list") != EX_OK) ...      it has complained
 *     connection_call(broker, channel, method, &arguments, reply, 0, "declaring \"orders\"");
 *     connection_pump(broker, until_ms);          frames that are no answers go to broker->on_frame
 *     connection_close(broker);
 */
#ifndef BACKHOP_COMMAND_CONNECTION_H
#define BACKHOP_COMMAND_CONNECTION_H

#include "common/options.h"

#include "worker/wire/clock.h"
#include "worker/wire/link.h"
#include "worker/wire/uri.h"

typedef struct connection connection;

/* Gets each frame of a channel that is no answer to a call; `method` is NULL for content. */
typedef void frame_listener(void *data, const bh__frame *frame, const amqp_method_t *method);

struct connection {
    bh__link link;
    bh__uri uri;
    frame_listener *on_frame;
    void *data;
    int code; /* of the channel.close that ended the last call; 0: none */
    char text[256];
    int has_waited; /* it has reported that the broker is slow */
    bh__report problem;
};

/* Ctrl-C and SIGTERM end waiting from here on; a second Ctrl-C ends the program. */
void catch_interrupts(void);
int is_interrupted(void);

/* The broker's URI: of the options, else AMQP_URL, else the one on this machine; and the CAs to
 * trust: NULL for the system's. */
const char *broker_uri(const broker_options *options);
const char *broker_ca_file(const broker_options *options);
/* Opens a connection, in *out, and returns EX_OK; or complains and returns the exit code. */
int connection_open(connection **out, const broker_options *options, const char *purpose);
/* Says goodbye; NULL is allowed. */
void connection_close(connection *self);
/* Returns 1 if the broker is RabbitMQ of this version or newer. */
int connection_is_at_least(const connection *self, int major, int minor);

/* Sends a method and waits for its reply, which is in self->link.reply until the next call.
 * BH_ERR_CONNECTION. If the broker closed the channel, self->code, text and problem have the
 * reason, and the channel has to be opened again. */
bh_status connection_call(connection *self, int channel, amqp_method_number_t method, void *arguments,
                          amqp_method_number_t reply, amqp_method_number_t other, const char *what);
bh_status connection_open_channel(connection *self, int channel);
bh_status connection_close_channel(connection *self, int channel);
/* Sends pending bytes, waits for input until `until_ms` at most (monotonic), and dispatches it.
 * BH_ERR_CONNECTION. */
bh_status connection_pump(connection *self, int64_t until_ms);
/* Reads the number of ready messages and of consumers (NULL: not wanted) of a queue, on an open
 * channel. BH_ERR_MISSING and BH_ERR_ACCESS close the channel. */
bh_status connection_read_depth(connection *self, int channel, const char *queue, int64_t *ready, int64_t *consumers);
/* Reads them on a channel of its own. */
bh_status connection_look(connection *self, const char *queue, int64_t *ready, int64_t *consumers);
/* Writes once that the broker does not answer, and that the command waits. Call it after
 * CONNECTION_PATIENT_MS of silence. */
void connection_report_waiting(connection *self);
/* Complains with the text of the last failure, and returns its exit code. */
int connection_complain(const connection *self);

enum { CONNECTION_PATIENT_MS = 3000 };
enum { CHANNEL_CALL = 1, CHANNEL_CONSUME, CHANNEL_PUBLISH, CHANNEL_COUNT = 16 };

#endif
