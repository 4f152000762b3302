/* Channel: the methods of a channel. Internal. */
#ifndef BACKHOP_COMMAND_MODEL_CHANNEL_H
#define BACKHOP_COMMAND_MODEL_CHANNEL_H

#include "model/broker.h"

#include "worker/librabbitmq.h"

/* Returns the channel of a number; NULL if it is not open. */
model_channel *model_channel_find(const model_link *link, int number);
/* Opens a channel. */
void model_channel_open(model_link *link, int number);
/* Executes a method that librabbitmq decoded; `table` is the table of its arguments. The channel
 * may be gone afterwards. */
void model_channel_do(model_channel *channel, const amqp_method_t *method, bh_bytes table);
/* Ends a channel whose channel.close-ok came. */
void model_channel_forget(model_channel *channel);

#endif
