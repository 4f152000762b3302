/* Dead letters: what leaves a queue for its dead-letter exchange. Internal. */
#ifndef BACKHOP_COMMAND_MODEL_DEAD_LETTERS_H
#define BACKHOP_COMMAND_MODEL_DEAD_LETTERS_H

#include "model/broker.h"

/* Publishes the oldest pending letter, at most once. Returns 0 if nothing was. */
int model_dead_letters_publish(model *self);
/* Publishes what the queue has to publish at least once, 32 at a time, and later the unconfirmed
 * ones again. */
void model_dead_letters_resend(model_queue *queue);
/* Returns the time of the next attempt; INT64_MAX: there is none. */
int64_t model_dead_letters_next_ms(const model_queue *queue);

#endif
