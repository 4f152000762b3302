/* Getter: the channel that parked messages come on, one after the other, to be replayed. Internal. */
#ifndef BACKHOP_WORKER_ENGINE_GETTER_H
#define BACKHOP_WORKER_ENGINE_GETTER_H

#include "engine/context.h"
#include "wire/assembler.h"

enum { BH__CHANNEL_GET = 1 }; /* of the consume link */

typedef enum bh__replay_result { BH__REPLAY_PENDING, BH__REPLAY_WENT, BH__REPLAY_FAILED } bh__replay_result;

typedef struct bh__getter {
    int is_open;
    int64_t number; /* of its channel in the ledger */
    bh__assembler assembler;
    int64_t entry;            /* of the message that came last; 0: none is in hand */
    bh__replay_result result; /* of that one */
    bh__report problem;       /* why it failed, or why the channel was closed */
} bh__getter;

void bh__getter_free(bh__getter *self);
/* The channel was opened. BH_ERR_STATE. */
bh_status bh__getter_opened(bh__getter *self, bh__context *context);
/* Forgets the channel: the broker has again what was not acknowledged on it. */
void bh__getter_end(bh__getter *self, bh__context *context);
/* A method or content frame on its channel. */
void bh__getter_on_frame(bh__getter *self, bh__context *context, const bh__frame *frame, const amqp_method_t *method);

#endif
