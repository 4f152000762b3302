/* Queue: messages in their order. The files that use it say when they leave. Internal. */
#ifndef BACKHOP_COMMAND_MODEL_QUEUE_H
#define BACKHOP_COMMAND_MODEL_QUEUE_H

#include "model/broker.h"

/* Lists of entries. */
void model_list_append(model_list *self, model_entry *entry);
void model_list_remove(model_list *self, model_entry *entry);

/* Adds a queue, with its settings. NULL: no memory. */
model_queue *model_queue_add(model_vhost *vhost, bh_bytes name, int is_quorum, bh_bytes arguments);
/* Frees the queue and its messages. Unacknowledged ones stay with their channels. */
void model_queue_free(model_queue *self);
model_queue *model_queue_find(const model_vhost *vhost, bh_bytes name);

/* Adds a message at the back. NULL: no memory. */
model_entry *model_queue_push(model_queue *self, model_message *message);
/* Makes an entry that is in no list ready again. In a classic queue it gets its old place. In a
 * quorum queue it goes before the others, or to the back if `is_back`. */
void model_queue_return(model_queue *self, model_entry *entry, int is_back);
/* Returns the next message; NULL if none is ready. */
model_entry *model_queue_head(const model_queue *self);
/* Takes a ready message out. */
void model_queue_take(model_queue *self, model_entry *entry);
/* Takes the head out for a consumer: the higher of two levels goes twice before the lower. */
model_entry *model_queue_pop(model_queue *self);
/* Frees an entry that is in no list. */
void model_entry_free(model_entry *self);
/* Frees the ready and the delayed messages and, if with_discards, the unconfirmed dead letters.
 * Returns the number of the ready. */
size_t model_queue_purge(model_queue *self, int with_discards);
/* Returns the milliseconds that a message may be ready; -1: no limit. */
int64_t model_queue_ttl(const model_queue *self, const model_message *message);

#endif
