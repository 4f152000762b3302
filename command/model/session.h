/* Session: what an alarm does to connections. Internal. */
#ifndef BACKHOP_COMMAND_MODEL_SESSION_H
#define BACKHOP_COMMAND_MODEL_SESSION_H

#include "model/broker.h"

/* Executes the complete frames of a connection's input. */
void model_session_read(model_link *link);
/* Begins or ends a memory alarm. */
void model_session_alarm(model *self, int is_on);

#endif
