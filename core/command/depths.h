/* Depths: how many messages are ready in the queues of a namespace, by passive declarations: nothing is taken or changed. */
#ifndef BACKHOP_COMMAND_DEPTHS_H
#define BACKHOP_COMMAND_DEPTHS_H

#include "connection.h"
#include "setup.h"

/* In the order in which they are shown. */
typedef enum depth_kind { DEPTH_WORK, DEPTH_PARKED, DEPTH_UNROUTABLE, DEPTH_WAITING } depth_kind;

typedef struct depth {
    depth_kind kind;
    char name[256];
    char work_queue[256]; /* that it is, or is parked from; "" where it serves many */
    int64_t wait_ms;      /* of a wait queue */
    int64_t ready;        /* -1: the queue is not there, or may not be looked at */
    int64_t consumers;    /* -1 the same */
    int64_t looked_ms;    /* monotonic: when it was looked for last */
} depth;

typedef struct depths {
    depth *items;
    size_t count;
} depths;

/* The queues of these work queues: each itself, its parked queue, and once the wait queues and the unroutable queue. */
void depths_plan(depths *self, const topology_options *topology, const policy_options *policy, char **queues,
                 int count);
void depths_free(depths *self);
/* Looks at all; at those that are not there once a minute. BH_ERR_CONNECTION and its kin: broker->problem. */
bh_status depths_read(depths *self, connection *broker);
/* Whether it is a wait queue that is not there: those are made on demand, and nobody misses it. */
int depth_is_not_made(const depth *self);
const char *depth_word(depth_kind kind);

#endif
