/* Login: from the protocol header until connection.open-ok. Internal. */
#ifndef BACKHOP_COMMAND_MODEL_LOGIN_H
#define BACKHOP_COMMAND_MODEL_LOGIN_H

#include "model/broker.h"

#include "worker/librabbitmq.h"

/* Reads the 8 bytes of the protocol header. */
void model_login_header(model_link *link, bh_bytes header);
/* Executes a method of channel 0 before the connection is open. */
void model_login_do(model_link *link, const amqp_method_t *method, bh_bytes table);

#endif
