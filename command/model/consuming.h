/* Consuming: the methods of consumers and deliveries. Internal. */
#ifndef BACKHOP_COMMAND_MODEL_CONSUMING_H
#define BACKHOP_COMMAND_MODEL_CONSUMING_H

#include "model/broker.h"

#include "worker/librabbitmq.h"

/* Executes a method; returns 0 if it is another one. */
int model_consuming_do(model_channel *channel, const amqp_method_t *method, bh_bytes table);

#endif
