/* Declaring: the methods of exchanges and queues. Each refuses what RabbitMQ refuses. Internal. */
#ifndef BACKHOP_COMMAND_MODEL_DECLARING_H
#define BACKHOP_COMMAND_MODEL_DECLARING_H

#include "model/broker.h"

#include "worker/librabbitmq.h"

/* `arguments` are the method's table, as on the wire. */
void model_declare_exchange(model_channel *channel, const amqp_exchange_declare_t *method, bh_bytes arguments);
void model_delete_exchange(model_channel *channel, const amqp_exchange_delete_t *method);
void model_declare_queue(model_channel *channel, const amqp_queue_declare_t *method, bh_bytes arguments);
void model_delete_queue(model_channel *channel, const amqp_queue_delete_t *method);
void model_purge_queue(model_channel *channel, const amqp_queue_purge_t *method);

/* A binding or its removal. */
typedef struct model_binding_request {
    int is_removal;
    int to_exchange;
    bh_bytes destination;
    bh_bytes source;
    bh_bytes key;
    bh_bytes arguments;
} model_binding_request;
/* Returns 0 if it was refused. */
int model_bind(model_channel *channel, const model_binding_request *request);

/* Finds a queue that the channel may use: "" is the last declared one. NULL: the method was
 * refused. */
model_queue *model_find_queue(model_channel *channel, bh_bytes name);
/* Returns the name that "" means on the channel; refuses the method, *is_there 0, if no queue was
 * declared on it. */
bh_bytes model_queue_name(model_channel *channel, bh_bytes name, int *is_there);
/* Returns 0 and refuses the method if the queue is another connection's. */
int model_may_use(model_channel *channel, const model_queue *queue, int is_strict);

#endif
