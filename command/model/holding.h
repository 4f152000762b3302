/* Holding: deliveries of a channel that are not settled. Internal. */
#ifndef BACKHOP_COMMAND_MODEL_HOLDING_H
#define BACKHOP_COMMAND_MODEL_HOLDING_H

#include "model/broker.h"

/* Makes room for one more. Returns 0 if memory runs out. */
int model_holding_reserve(model_channel *channel);
/* Adds an entry that is in no list, with the channel's next tag. `consumer` is NULL for basic.get.
 * There is room. */
void model_holding_add(model_channel *channel, model_entry *entry, model_consumer *consumer);
/* Returns the place of a tag that is not settled; -1 if there is none. */
int64_t model_holding_find(const model_channel *channel, uint64_t tag);
/* Returns the entry of a tag; NULL if it is settled. */
model_entry *model_holding_entry(const model_channel *channel, uint64_t tag);
/* Takes the entry of a place out: it is in no list then. It may have no queue, and no message. */
model_entry *model_holding_take(model_channel *channel, size_t place);
/* Leaves a mark in place of the entry, for the acknowledgement that may still come. Returns 0 if
 * memory runs out. */
int model_holding_time_out(model_channel *channel, model_entry *entry);
/* Leaves a mark too, and the consumer gets more messages before the acknowledgement. */
int model_holding_forsake(model_channel *channel, model_entry *entry);
/* Forgets a consumer that is gone. */
void model_holding_forget(model_channel *channel, const model_consumer *consumer);

#endif
