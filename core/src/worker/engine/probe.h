/*
 * Probe: checks that a silent broker still has its cluster.
 * A node of RabbitMQ 4.3 that lost its cluster keeps its clients, answers heartbeats and delivers
 * nothing. A worker with nothing in hand would wait forever. Such a node does not answer a change
 * of bindings, so the probe unbinds a binding that does not exist.
 * Measured on 4.3.6: a node that has its cluster answers within 10 ms, also during leader
 * elections, and logs nothing. A repeated declaration does not help: a node answers it alone.
 * Internal.
 */
#ifndef BACKHOP_WORKER_ENGINE_PROBE_H
#define BACKHOP_WORKER_ENGINE_PROBE_H

#include "worker/engine/context.h"

enum { BH__CHANNEL_PROBE = 3 }; /* of the consume link */

/* Zeroed: idle. */
typedef struct bh__probe {
    int is_open;     /* the channel */
    int is_refused;  /* the user has no permission: no more probes in this run */
    int64_t sent_ms; /* monotonic; 0: no answer is outstanding */
} bh__probe;

/* Resets the probe when the consume connection ends. */
void bh__probe_end(bh__probe *self);
/* Returns when bh__probe_check has something to do, monotonic; INT64_MAX: nothing. */
int64_t bh__probe_due_ms(const bh__probe *self, const bh__context *context);
/* Sends a probe if one is due. Gives up both connections if the answer is late. */
void bh__probe_check(bh__probe *self, bh__context *context);
/* Handles a method on the channel; NULL: another frame. */
void bh__probe_on_frame(bh__probe *self, bh__context *context, const amqp_method_t *method);

#endif
