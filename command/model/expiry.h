/* Expiry: messages whose TTL is over, and retries that are due. Internal. */
#ifndef BACKHOP_COMMAND_MODEL_EXPIRY_H
#define BACKHOP_COMMAND_MODEL_EXPIRY_H

#include "model/broker.h"

/* Removes expired messages at the head. */
void model_expiry_run(model_queue *queue);
/* Makes delayed messages ready that are due. */
void model_expiry_retry(model_queue *queue);
/* Adds a message that is to wait until ready_ms. */
void model_expiry_delay(model_queue *queue, model_entry *entry);
/* Returns the time at which either changes something; INT64_MAX: never. */
int64_t model_expiry_next_ms(const model_queue *queue);

#endif
