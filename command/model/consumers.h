/* Consumers: who gets the next message of a queue. Internal. */
#ifndef BACKHOP_COMMAND_MODEL_CONSUMERS_H
#define BACKHOP_COMMAND_MODEL_CONSUMERS_H

#include "model/broker.h"

typedef struct model_consuming {
    bh_bytes tag;
    int has_no_ack;
    int is_exclusive;
    int64_t priority;
    int64_t timeout_ms; /* -1: the queue's */
} model_consuming;

/* Adds a consumer. NULL: no memory. */
model_consumer *model_consumers_add(model_channel *channel, model_queue *queue, const model_consuming *consuming);
/* Removes a consumer; its deliveries stay with the channel. Returns 1 if the queue has to go, as it
 * is auto-delete. */
int model_consumers_remove(model_consumer *self);
model_consumer *model_consumers_find(const model_channel *channel, bh_bytes tag);
/* Delivers ready messages to consumers that may have more. */
void model_consumers_deliver(model_queue *queue);
/* Returns what basic.deliver and basic.get-ok show of the counts; *is_redelivered too. */
model_counts model_consumers_counts(const model_entry *entry, int is_get, int *is_redelivered);

#endif
