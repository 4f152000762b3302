/* Publisher: publishes one message at a time and waits until the broker has confirmed it. Internal. */
#ifndef BACKHOP_WORKER_PUBLISH_H
#define BACKHOP_WORKER_PUBLISH_H

#include "worker_connection.h"

/* What the broker made of the last publish. */
typedef enum bh__answer { BH__NO_ANSWER, BH__CONFIRMED, BH__NACKED, BH__CLOSED } bh__answer;

/* Zero bytes are a closed one. */
typedef struct bh__publisher {
    bh__connection connection;
    int is_confirming;         /* its channel is open, with confirms on */
    uint64_t published;        /* on this channel: the delivery tag of the last publish */
    int is_pending;            /* the last publish was sent, and what the broker made of it was not yet returned */
    bh__answer answer;         /* to the last publish */
    bh_status meaning;         /* of BH__CONFIRMED (it may have been returned before) and BH__CLOSED */
    int was_returned;          /* the last publish */
    bh__connection *others[2]; /* get their heartbeats while it waits; NULL: none */
} bh__publisher;

typedef struct bh__publication {
    bh_bytes exchange;
    bh_bytes routing_key;
    int mandatory;
    const amqp_basic_properties_t *properties; /* must fit one frame */
    bh_bytes body;
} bh__publication;

/* Opens what is not open: the connection and the channel. As bh__connection_open. */
bh_status bh__publisher_open(bh__publisher *self, const bh__settings *settings, const char *name, bh__report *report);
/*
 * Publishes, and returns BH_OK when the broker has it: confirmed and not returned. BH_ERR_PUBLISH (returned, nacked,
 * not confirmed in time), BH_ERR_MISSING (no such exchange), BH_ERR_ACCESS, BH_ERR_CHANNEL (refused for what it is),
 * BH_ERR_CONNECTION, BH_ERR_NO_MEMORY. After a publish that was not confirmed in time, it is closed; but where the
 * broker blocks publishers the publish is pending: the next call waits for its confirm, and publishes nothing.
 */
bh_status bh__publisher_publish(bh__publisher *self, const bh__publication *publication, int64_t timeout_ms,
                                bh__report *report);
/* Reads what came without being asked for, and sends a heartbeat if one is due. BH_OK, else as bh__connection_frame. */
bh_status bh__publisher_service(bh__publisher *self, bh__report *report);
/* Closes it where a publish is pending, so that its confirm is not taken for the next one's. */
void bh__publisher_forget(bh__publisher *self);
void bh__publisher_close(bh__publisher *self);

#endif
