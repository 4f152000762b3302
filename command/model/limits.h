/* Limits: who may publish to a queue, and what a full queue drops. Internal. */
#ifndef BACKHOP_COMMAND_MODEL_LIMITS_H
#define BACKHOP_COMMAND_MODEL_LIMITS_H

#include "model/broker.h"

/* Publishes a message to a queue. Returns 0 if the queue rejected it. A quorum queue rejects only
 * who waits for its
 * confirm: is_tracked. */
int model_limits_publish(model_queue *queue, model_message *message, int is_tracked);
/* Drops messages beyond the limits, from the head, and lets publishers in or out of a quorum
 * queue. */
void model_limits_enforce(model_queue *queue);

#endif
