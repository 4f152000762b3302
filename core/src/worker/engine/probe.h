/*
 * Probe: asks the broker something where nothing else is heard of it. A node of RabbitMQ 4.3 that lost its cluster keeps its
 * clients, answers heartbeats, and delivers nothing: a worker with nothing in hand would wait there. What such a node does
 * not answer is a change of bindings, so the question is to remove a binding that there is not. Seen on 4.3.6: a node that has
 * its cluster answers within some 10 ms, also while the cluster elects new leaders, and writes nothing to its log. Declaring
 * again what is there is answered by a node on its own. Internal.
 */
#ifndef BACKHOP_WORKER_ENGINE_PROBE_H
#define BACKHOP_WORKER_ENGINE_PROBE_H

#include "engine/context.h"

enum { BH__CHANNEL_PROBE = 3 }; /* of the consume link */

/* Zero bytes: nothing was asked. */
typedef struct bh__probe {
    int is_open;      /* its channel */
    int is_refused;   /* the user may not ask this: not in this run again */
    int64_t asked_ms; /* monotonic; 0: no answer is waited for */
} bh__probe;

/* The consume connection ended. */
void bh__probe_end(bh__probe *self);
/* When bh__probe_look has something to do, monotonic; INT64_MAX: not as things are. */
int64_t bh__probe_due_ms(const bh__probe *self, const bh__context *context);
/* Asks where it is time; gives both connections up where the answer did not come in time. */
void bh__probe_look(bh__probe *self, bh__context *context);
/* A method on its channel; NULL: another frame. */
void bh__probe_on_frame(bh__probe *self, bh__context *context, const amqp_method_t *method);

#endif
