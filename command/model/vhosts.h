/* Vhosts. Internal. */
#ifndef BACKHOP_COMMAND_MODEL_VHOSTS_H
#define BACKHOP_COMMAND_MODEL_VHOSTS_H

#include "model/broker.h"

/* Adds a vhost with RabbitMQ's own exchanges. NULL: no memory. */
model_vhost *model_vhosts_add(model *self, bh_bytes name);
/* Closes its connections, and frees it with all that is in it. */
void model_vhosts_delete(model_vhost *self);
/* Removes what does not survive a restart: there are no connections. */
void model_vhosts_restart(model *self);

#endif
