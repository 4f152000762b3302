/* Output: frames for a client. Internal. */
#ifndef BACKHOP_COMMAND_MODEL_OUTPUT_H
#define BACKHOP_COMMAND_MODEL_OUTPUT_H

#include "model/broker.h"

#include "worker/librabbitmq.h"

/* Write a method, or a method with content. If memory runs out, the connection is cut. */
void model_send(model_link *link, int channel, amqp_method_number_t method, void *arguments);
void model_send_content(model_link *link, int channel, amqp_method_number_t method, void *arguments,
                        const model_message *message, model_counts counts);
void model_send_heartbeat(model_link *link);
/* Writes bytes that are no frame. */
void model_send_bytes(model_link *link, bh_bytes bytes);

#endif
