/* Methods: the tables in methods, which librabbitmq decodes by recursion: their depth is checked
 * before. Internal. */
#ifndef BACKHOP_COMMAND_MODEL_METHODS_H
#define BACKHOP_COMMAND_MODEL_METHODS_H

#include "model/broker.h"

#include "worker/librabbitmq.h"

/* Finds the table of a method's arguments, without its length: "" if the method has none. Returns 0
 * if the bytes are too short, or the table is malformed or too deep. */
int model_method_table(amqp_method_number_t method, bh_bytes arguments, bh_bytes *out);
/* Returns 1 if it is a method that clients send. */
int model_method_is_known(amqp_method_number_t method);

#endif
