/* Death header: x-death until 3.12: the header itself is the history. Internal. */
#ifndef BACKHOP_COMMAND_MODEL_DEATH_HEADER_H
#define BACKHOP_COMMAND_MODEL_DEATH_HEADER_H

#include "model/deaths.h"

/* Stores the properties of the dead letter `to`. Returns 0 if memory runs out. */
int model_death_header_write(model_message *to, const model_version *version, const model_message *from,
                             const model_dying *dying);
int model_death_header_is_cycle(const model_message *letter, bh_bytes queue);

#endif
