/* Publisher: publishes one message at a time and waits until the broker has confirmed it. Internal. */
#ifndef BACKHOP_WORKER_PUBLISH_H
#define BACKHOP_WORKER_PUBLISH_H

#include "worker_connection.h"

/* Zero bytes are a closed one. */
typedef struct bh__publisher {
    bh__connection connection;
    int is_confirming;         /* its channel is open, with confirms on */
    uint64_t published;        /* on this channel: the delivery tag of the last publish */
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
 * BH_ERR_CONNECTION, BH_ERR_NO_MEMORY. After a publish that was not confirmed in time, it is closed.
 */
bh_status bh__publisher_publish(bh__publisher *self, const bh__publication *publication, int64_t timeout_ms,
                                bh__report *report);
/* Reads what came without being asked for, and sends a heartbeat if one is due. BH_OK, else as bh__connection_frame. */
bh_status bh__publisher_service(bh__publisher *self, bh__report *report);
void bh__publisher_close(bh__publisher *self);

#endif
