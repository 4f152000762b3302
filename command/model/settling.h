/* Settling: what becomes of deliveries. Internal. */
#ifndef BACKHOP_COMMAND_MODEL_SETTLING_H
#define BACKHOP_COMMAND_MODEL_SETTLING_H

#include "model/broker.h"

typedef enum model_verdict {
    MODEL_ACK,
    MODEL_NACK_REQUEUE, /* basic.recover too */
    MODEL_REJECT_REQUEUE,
    MODEL_NACK_DISCARD,
    MODEL_REJECT_DISCARD,
    MODEL_LOST, /* with its channel */
    MODEL_TIMED_OUT
} model_verdict;

/* Settles one delivery, or all up to it. Tag 0 with `is_multiple` is all. Returns 0 if the tag is
 * unknown. */
int model_settling_do(model_channel *channel, uint64_t tag, int is_multiple, model_verdict verdict);
/* Settles all deliveries. */
void model_settling_all(model_channel *channel, model_verdict verdict);
/* Ends one delivery whose entry is in no list. */
void model_settling_end(model_entry *entry, model_verdict verdict);

/* A quorum queue has a new leader: all that is unacknowledged is ready again, and its tags stay
 * valid. */
void model_settling_move_leader(model_queue *queue);

#endif
