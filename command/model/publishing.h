/* Publishing: from basic.publish to returns and confirms. Internal. */
#ifndef BACKHOP_COMMAND_MODEL_PUBLISHING_H
#define BACKHOP_COMMAND_MODEL_PUBLISHING_H

#include "model/broker.h"

/* Begins a publish; its content follows. */
void model_publishing_begin(model_channel *channel, bh_bytes exchange, bh_bytes routing_key, int is_mandatory,
                            int is_immediate);
/* The content header and each body frame. They publish the message once it is complete. A method
 * that comes before is refused. */
void model_publishing_header(model_channel *channel, bh_bytes payload);
void model_publishing_interrupt(model_channel *channel);
void model_publishing_body(model_channel *channel, bh_bytes payload);
/* Publishes a message of a transaction. */
void model_publishing_commit(model_channel *channel, model_message *message, int is_mandatory);
/* Sends the confirms that are due. */
void model_publishing_confirm(model_channel *channel);
/* Returns the time of the next confirm; INT64_MAX: there is none. */
int64_t model_publishing_next_ms(const model_channel *channel);

#endif
