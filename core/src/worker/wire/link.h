/* Link: one AMQP connection that never blocks, with frames and heartbeats. librabbitmq encodes
 * and decodes the methods. Internal. */
#ifndef BACKHOP_WORKER_WIRE_LINK_H
#define BACKHOP_WORKER_WIRE_LINK_H

#include "worker/librabbitmq.h"
#include "base/buffer.h"
#include "base/report.h"
#include "worker/wire/socket.h"

enum { BH__FRAME_MAX = 131072, BH__LEAST_FRAME_MAX = 4096 }; /* what the worker proposes; the least that AMQP allows */

typedef enum bh__phase {
    BH__CLOSED,
    BH__RESOLVING,  /* the host is looked up: the socket is the descriptor of the lookup */
    BH__CONNECTING, /* the socket connects */
    BH__SECURING,   /* TLS */
    BH__TALKING     /* AMQP */
} bh__phase;

typedef struct bh__frame {
    int type;
    amqp_channel_t channel;
    bh_bytes payload; /* in the link's buffer, until the next read */
} bh__frame;

typedef struct bh__link {
    bh__phase phase;
    int is_open; /* logged in */
    bh__socket socket;
    bh__buffer in;
    bh__buffer out;
    size_t frame_max;
    int channel_max;
    int64_t heartbeat_ms; /* 0: off */
    int64_t sent_ms;      /* monotonic, as all times here */
    int64_t received_ms;
    int has_more;   /* the socket may have more bytes */
    int is_blocked; /* connection.blocked: the broker accepts no publishes */
    char user[256]; /* of the login, for messages */
    int is_cut;     /* the socket was closed or reset without connection.close */
    int close_code; /* of connection.close; 0: none came */
    char close_text[256];
    char product[64]; /* of the broker, from its server-properties */
    char version[64];
    char cluster[256];      /* name of its cluster, from there too; "" before RabbitMQ 3.6 */
    amqp_pool_t pool;       /* of the current method */
    amqp_pool_t reply_pool; /* of `reply` */
    amqp_channel_t reply_channel;
    amqp_method_number_t awaited;     /* 0: none */
    amqp_method_number_t awaited_too; /* the alternative; 0: none */
    amqp_method_t reply;              /* the reply, or channel.close; id 0: none yet */
    bh__report problem;               /* why the link is unusable; status BH_OK: it is usable */
} bh__link;

void bh__link_init(bh__link *self);
void bh__link_free(bh__link *self);
/* Closes the socket without connection.close. Unsent bytes are lost. */
void bh__link_close(bh__link *self);
/* Records why the link is unusable. The first reason is kept. */
void bh__link_fail(bh__link *self, bh_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));
static inline int bh__link_is_broken(const bh__link *self)
{
    return self->problem.status != BH_OK;
}

/* Returns the events to poll the socket for. */
short bh__link_events(const bh__link *self);
/* Reads a limited number of bytes. Records a failure. */
void bh__link_read(bh__link *self, int64_t now_ms);
/* Sends written bytes, as many as the socket accepts. Records a failure. */
void bh__link_flush(bh__link *self, int64_t now_ms);
/* Returns 1 and the next whole frame; 0 if there is none. */
int bh__link_next(bh__link *self, bh__frame *frame);
/* Decodes a method. Its memory is the frame's payload and the link's pool, until the next frame.
 * Returns 0 and records the failure if it is malformed. */
int bh__link_decode(bh__link *self, const bh__frame *frame, amqp_method_t *out);
/* Sends a heartbeat if one is due. Fails the link if the broker was silent for two heartbeats. */
void bh__link_beat(bh__link *self, int64_t now_ms);
/* Returns when bh__link_beat must be called next; INT64_MAX: never. */
int64_t bh__link_next_beat_ms(const bh__link *self);

/* Writes the protocol header. This and the next functions record a failure (no memory). */
void bh__link_greet(bh__link *self);
/* Writes a method. */
void bh__link_send(bh__link *self, amqp_channel_t channel, amqp_method_number_t method, void *arguments);
/* Writes a publish and its content. properties: property flags and list, as on the wire. */
void bh__link_publish(bh__link *self, amqp_channel_t channel, const amqp_basic_publish_t *publish, bh_bytes properties,
                      bh_bytes body);
/* Answers a channel.close. Puts its text and the status of its code into the report:
 * BH_ERR_ACCESS, BH_ERR_MISSING, BH_ERR_CLASH, BH_ERR_CHANNEL. what: the action that failed. */
bh_status bh__link_answer_channel_close(bh__link *self, amqp_channel_t channel, const amqp_channel_close_t *close,
                                        const char *what, bh__report *report);
/* Answers a connection.close and fails the link. */
void bh__link_answer_close(bh__link *self, const amqp_connection_close_t *close);
/* Returns how many bytes of properties fit a content header. */
size_t bh__link_header_room(const bh__link *self);

#endif
