/* Parked reader: the channel that basic.get reads parked messages on, one after the other, to
 * replay them. Internal. */
#ifndef BACKHOP_WORKER_ENGINE_PARKED_READER_H
#define BACKHOP_WORKER_ENGINE_PARKED_READER_H

#include "worker/engine/context.h"
#include "worker/wire/assembler.h"

enum { BH__CHANNEL_GET = 1 }; /* of the consume link */

typedef enum bh__replay_result { BH__REPLAY_PENDING, BH__REPLAY_DONE, BH__REPLAY_FAILED } bh__replay_result;

typedef struct bh__parked_reader {
    int is_open;
    int64_t ledger_channel; /* the channel in the ledger */
    bh__assembler assembler;
    int64_t entry;            /* of the last message; 0: none is in hand */
    bh__replay_result result; /* of the last message */
    bh__report problem;       /* why the replay failed, or why the channel was closed */
} bh__parked_reader;

void bh__parked_reader_free(bh__parked_reader *self);
/* Enters the new channel in the ledger. BH_ERR_NO_MEMORY. */
bh_status bh__parked_reader_opened(bh__parked_reader *self, bh__context *context);
/* Forgets the channel: the broker requeues its unacknowledged messages. */
void bh__parked_reader_end(bh__parked_reader *self, bh__context *context);
/* Handles a method or content frame on the channel. */
void bh__parked_reader_on_frame(bh__parked_reader *self, bh__context *context, const bh__frame *frame,
                                const amqp_method_t *method);

#endif
