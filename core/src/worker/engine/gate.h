/*
 * Gate: executes the flow of the worker's breaker. Callers get the permits themselves, when they
 * take messages (bh__mailbox_take). Internal.
 */
#ifndef BACKHOP_WORKER_ENGINE_GATE_H
#define BACKHOP_WORKER_ENGINE_GATE_H

#include "worker/engine/consumer.h"

#include <backhop/adapter/flow.h>

/* Zeroed: without a breaker. */
typedef struct bh__gate {
    bh_flow *flow;   /* NULL: none */
    int64_t due_ms;  /* monotonic: when to look again; INT64_MAX: never */
    int is_limiting; /* messages wait for the breaker, not for handlers */
} bh__gate;

/* Prepares the gate for a run. BH_ERR_NO_MEMORY. */
bh_status bh__gate_begin(bh__gate *self, const bh__settings *settings);
void bh__gate_free(bh__gate *self);
/* Executes the steps that are due. */
void bh__gate_update(bh__gate *self, bh__consumer *consumer, bh__context *context);
/* Returns when to look again, monotonic; INT64_MAX: never. */
int64_t bh__gate_due_ms(const bh__gate *self);

#endif
