/* Deaths: dead letters, and their headers x-death and x-first-death. Internal. */
#ifndef BACKHOP_COMMAND_MODEL_DEATHS_H
#define BACKHOP_COMMAND_MODEL_DEATHS_H

#include "model/message.h"

/* A death: the queue, the reason and the destination. */
typedef struct model_dying {
    model_reason reason;
    bh_bytes queue;
    bh_bytes exchange;    /* its destination */
    bh_bytes routing_key; /* if has_key */
    int has_key;
    int64_t now_s;  /* since the epoch */
    int64_t failed; /* deliveries that failed; -1: not counted */
} model_dying;

/* Makes the dead letter of a message, with one reference. NULL: no memory. */
model_message *model_death_record(const model_version *version, const model_message *message, const model_dying *dying);
/* Returns 1 if a dead letter may not go to a queue, because it came from there without a rejection
 * since. */
int model_death_is_cycle(const model_version *version, const model_message *letter, model_reason reason,
                         bh_bytes queue);
/* Appends x-death, x-first-death-* and x-last-death-*; nothing if there is no death. Returns 0 if
 * memory runs out. */
int model_deaths_write(bh__buffer *out, const model_message *self);

#endif
