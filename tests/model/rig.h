/*
 * Rig: a client of the model in the same process, which writes and reads frames.
 *
 *     rig *r = rig_new("4.3");
 *     rig_declare(r, "orders", "quorum", NULL, 0);
 *     rig_publish(r, "", "orders", "body", NULL);
 *     rig_expect(r, AMQP_BASIC_ACK_METHOD);
 *     rig_free(r);
 *
 * A failure ends the test.
 */
#ifndef BACKHOP_TESTS_MODEL_RIG_H
#define BACKHOP_TESTS_MODEL_RIG_H

#include "model/model.h"

#include "base/buffer.h"
#include "base/report.h"
#include "worker/librabbitmq.h"

/* The last frame that the client read. The bytes are valid until the next call with the rig. */
typedef struct rig_frame {
    int type;
    int channel;
    amqp_method_t method;
    bh_bytes payload;
} rig_frame;

typedef struct rig {
    model *broker;
    model_link *link;
    bh__buffer out;    /* to the broker */
    bh__buffer header; /* of the content in hand */
    bh__buffer in;
    amqp_pool_t pool;
    rig_frame frame;
    /* The last content: */
    bh__buffer properties;
    bh__buffer body;
    uint64_t tag;
    int is_redelivered;
    char key[256];
} rig;

/* A broker of a version, with a client that has channel 1 open in confirm mode. `tape`: choices;
 * NULL: none. */
rig *rig_new(const char *version);
rig *rig_with_tape(const char *version, const unsigned char *tape, size_t size);
/* A broker and a connection on which nothing was written. */
rig *rig_raw(const char *version);
void rig_free(rig *self);
/* Logs in again after the connection ended, with these capabilities or without any. */
void rig_login(rig *self, int has_capabilities);
void rig_open_channel(rig *self, int channel);

/* Writes a method on a channel, or bytes as they are. */
void rig_send(rig *self, int channel, amqp_method_number_t method, void *arguments);
void rig_write(rig *self, const void *bytes, size_t size);
void rig_write_frame(rig *self, int type, int channel, bh_bytes payload);
/* Reads the next frame, which must be this method on channel 1 (0 for the connection's). Returns
 * its decoded fields. */
void *rig_expect(rig *self, amqp_method_number_t method);
/* The next frame is a close of the channel, or of the connection, with this code and text. */
void rig_expect_close(rig *self, int code, const char *text);
/* Nothing is left to read. */
void rig_expect_nothing(rig *self);

/* An argument of a queue or a header: `text`, or `number` if that is NULL. */
typedef struct rig_entry {
    const char *name;
    const char *text;
    int64_t number;
} rig_entry;

/* Declares a durable queue; type NULL: none. `rig_declare` expects the answer. */
void rig_send_declare(rig *self, const char *queue, const char *type, const rig_entry *arguments, size_t count);
void rig_declare(rig *self, const char *queue, const char *type, const rig_entry *arguments, size_t count);
/* Returns the ready messages of a queue. */
size_t rig_depth(rig *self, const char *queue);
/* Publishes with raw property flags and list, or NULL for none. Reads no confirm. */
void rig_publish_raw(rig *self, const char *exchange, const char *key, const char *body, const bh__buffer *properties,
                     int is_mandatory);
/* Publishes and expects the ack. `expiration` NULL: none. */
void rig_publish(rig *self, const char *exchange, const char *key, const char *body, const char *expiration);
void rig_consume(rig *self, const char *queue, int prefetch);
/* The next frames are a delivery, or get-ok, with this body. */
void rig_expect_delivery(rig *self, const char *body);
/* Gets a message with this body; NULL: the queue is empty. */
void rig_get(rig *self, const char *queue, const char *body);
void rig_ack(rig *self, uint64_t tag);
void rig_nack(rig *self, uint64_t tag, int is_requeue);
void rig_reject(rig *self, uint64_t tag, int is_requeue);
/* Moves the model's time. */
void rig_advance(rig *self, int64_t span_ms);
/* Executes a command; it must succeed. */
void rig_control(rig *self, const char *line);

#endif
