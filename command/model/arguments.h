/* Arguments: of queues, as declared: which are valid, and which are equivalent. Internal. */
#ifndef BACKHOP_COMMAND_MODEL_ARGUMENTS_H
#define BACKHOP_COMMAND_MODEL_ARGUMENTS_H

#include "model/broker.h"

/* Returns 1 for x-queue-type quorum, 0 for classic or none, -1 for others. */
int model_arguments_are_quorum(bh_bytes arguments);
/* Check the arguments of a new queue, or of a consumer. Return 0 and refuse the method if one is
 * invalid. */
int model_arguments_check(model_channel *channel, bh_bytes queue, bh_bytes arguments);
int model_arguments_check_consumer(model_channel *channel, const model_queue *queue, bh_bytes arguments);
/* Compares the arguments of a queue with a later declaration's. Returns 0 and refuses the method if
 * they differ. */
int model_arguments_compare(model_channel *channel, const model_queue *queue, bh_bytes arguments);
/* Compares one argument; kind: "queue", "exchange". */
int model_arguments_compare_one(model_channel *channel, const char *kind, bh_bytes name, bh_bytes current,
                                bh_bytes received, const char *key);
/* Compares a property of a declaration by its text. */
int model_arguments_compare_text(model_channel *channel, const char *kind, bh_bytes name, const char *key,
                                 const char *current, const char *received);

#endif
