/* Exchange: exchanges, bindings and routing. Internal. */
#ifndef BACKHOP_COMMAND_MODEL_EXCHANGE_H
#define BACKHOP_COMMAND_MODEL_EXCHANGE_H

#include "model/broker.h"

/* Returns RabbitMQ's own constant for a type; NULL if it is unknown. */
const char *model_exchange_type(bh_bytes name);
/* Adds an exchange. NULL: no memory. */
model_exchange *model_exchange_add(model_vhost *vhost, bh_bytes name, const char *type, bh_bytes arguments);
/* Deletes an exchange, its bindings, and auto-delete exchanges that lose their last binding. */
void model_exchange_delete(model_exchange *self);
/* Frees without a look at bindings to it. */
void model_exchange_free(model_exchange *self);
model_exchange *model_exchange_find(const model_vhost *vhost, bh_bytes name);

/* A binding to a queue or an exchange; the other is NULL. Returns 0 if memory runs out. */
int model_exchange_bind(model_exchange *self, model_queue *queue, model_exchange *exchange, bh_bytes key,
                        bh_bytes arguments);
/* Removes it, if it is there. May delete `self`, if it is auto-delete and that was its last
 * binding. */
void model_exchange_unbind(model_exchange *self, model_queue *queue, model_exchange *exchange, bh_bytes key,
                           bh_bytes arguments);
/* Removes all bindings to a queue. */
void model_exchange_forget_queue(model_queue *queue);

/* Queues that a message goes to. All fields 0: none. */
typedef struct model_route {
    model_queue **queues;
    size_t count;
    size_t capacity;
    model_exchange **exchanges; /* to be visited, and visited */
    size_t exchange_count;
    size_t exchange_capacity;
} model_route;

/* Finds the queues, each once. Returns 0 if memory runs out. */
int model_exchange_route(model_exchange *self, const model_message *message, model_route *out);
void model_route_free(model_route *self);

#endif
