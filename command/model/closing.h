/* Closing: errors of channels and connections, and the ends of consumers, queues, channels and
 * connections. Internal. */
#ifndef BACKHOP_COMMAND_MODEL_CLOSING_H
#define BACKHOP_COMMAND_MODEL_CLOSING_H

#include "model/broker.h"

/* Refuses the method in hand with RabbitMQ's reply code and text, whose name comes first:
 * "NOT_FOUND - ". By the code that closes the channel or the connection. */
void model_refuse(model_channel *channel, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Closes a connection with a text. */
void model_link_refuse(model_link *link, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Closes a connection with a text as it is. */
void model_link_close(model_link *link, int code, const char *text);

/* Ends a consumer; its queue goes too if that is auto-delete. */
void model_end_consumer(model_consumer *consumer);
/* Deletes a queue: its consumers are cancelled, its bindings go. Returns the number of ready
 * messages. */
size_t model_end_queue(model_queue *queue);
/* Ends a channel: its deliveries return to the queues. Frees it, unless it waits for
 * channel.close-ok. */
void model_end_channel(model_channel *channel);
/* Ends all channels and exclusive queues of a connection. */
void model_end_link(model_link *link);

#endif
