/* Link: one AMQP connection that never blocks. Frames in and out, heartbeats; librabbitmq knows the methods.
 * Internal. */
#ifndef BACKHOP_WORKER_WIRE_LINK_H
#define BACKHOP_WORKER_WIRE_LINK_H

#include "librabbitmq.h"
#include "buffer.h"
#include "report.h"
#include "wire/socket.h"

enum { BH__FRAME_MAX = 131072, BH__LEAST_FRAME_MAX = 4096 }; /* what we ask for; AMQP's least */

typedef enum bh__phase {
    BH__CLOSED,
    BH__RESOLVING,  /* the host: the socket is the descriptor of a lookup */
    BH__CONNECTING, /* the socket */
    BH__SECURING,   /* TLS */
    BH__TALKING     /* AMQP */
} bh__phase;

typedef struct bh__frame {
    int type;
    amqp_channel_t channel;
    bh_bytes payload; /* in the link's buffer, until it is read into again */
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
    int has_more;   /* the socket was not read to its end */
    int is_blocked; /* connection.blocked: the broker takes no publishes */
    int is_cut;     /* the socket was closed or reset, without a word of AMQP */
    int close_code; /* of connection.close; 0: none came */
    char close_text[256];
    char product[64]; /* the broker's, from its server-properties */
    char version[64];
    char cluster[256];      /* its cluster's name, from there too; "" before RabbitMQ 3.6 */
    amqp_pool_t pool;       /* of the method that is being dispatched */
    amqp_pool_t reply_pool; /* of `reply` */
    amqp_channel_t reply_channel;
    amqp_method_number_t awaited;     /* 0: none */
    amqp_method_number_t awaited_too; /* instead of it */
    amqp_method_t reply;              /* or the channel.close that came instead; id 0: not yet */
    bh__report problem;               /* why it is of no more use; status BH_OK: it is */
} bh__link;

void bh__link_init(bh__link *self);
void bh__link_free(bh__link *self);
/* Closes it without a word. What was written and not sent is gone. */
void bh__link_close(bh__link *self);
/* Notes why it is of no more use, unless that is known already. */
void bh__link_fail(bh__link *self, bh_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));
static inline int bh__link_is_broken(const bh__link *self)
{
    return self->problem.status != BH_OK;
}

/* What to poll its socket for. */
short bh__link_events(const bh__link *self);
/* Reads what there is, up to some; sends what was written, as far as it goes. A failure is noted. */
void bh__link_read(bh__link *self, int64_t now_ms);
void bh__link_flush(bh__link *self, int64_t now_ms);
/* The next frame that has come whole; 0 where there is none. */
int bh__link_next(bh__link *self, bh__frame *frame);
/* Decodes a method; the frame's payload and the link's pool hold what it points to, until the next one. */
int bh__link_decode(bh__link *self, const bh__frame *frame, amqp_method_t *out);
/* Sends a heartbeat where one is due, and fails where the broker is silent for two. */
void bh__link_beat(bh__link *self, int64_t now_ms);
/* When bh__link_beat has to be called next; INT64_MAX: never. */
int64_t bh__link_next_beat_ms(const bh__link *self);

/* Writes the protocol header; a method; a publish with its content, whose property flags and list `properties` is. A
 * failure (no memory) is noted. */
void bh__link_greet(bh__link *self);
void bh__link_send(bh__link *self, amqp_channel_t channel, amqp_method_number_t method, void *arguments);
void bh__link_publish(bh__link *self, amqp_channel_t channel, const amqp_basic_publish_t *publish, bh_bytes properties,
                      bh_bytes body);
/* Answers a channel.close; its words, and the status that its code means, go into the report: BH_ERR_ACCESS,
 * BH_ERR_MISSING, BH_ERR_CLASH, BH_ERR_CHANNEL. `what` was being done. */
bh_status bh__link_answer_channel_close(bh__link *self, amqp_channel_t channel, const amqp_channel_close_t *close,
                                        const char *what, bh__report *report);
/* Answers a connection.close, and notes that the link is of no more use. */
void bh__link_answer_close(bh__link *self, const amqp_connection_close_t *close);
/* Bytes of properties that fit a content header. */
size_t bh__link_header_room(const bh__link *self);

#endif
