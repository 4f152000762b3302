/* Publisher: the channels that copies are published on, and the broker's answers. Internal. */
#ifndef BACKHOP_WORKER_ENGINE_PUBLISHER_H
#define BACKHOP_WORKER_ENGINE_PUBLISHER_H

#include "worker/engine/context.h"
#include "worker/wire/assembler.h"

/* RabbitMQ handles the publishes of one channel in one process. A second channel removes this
 * limit. */
enum { BH__PUBLISH_CHANNELS = 2, BH__FIRST_PUBLISH_CHANNEL = 1 };

enum { BH__REPLY_TEXT = 264 }; /* bytes for the code and text of a reply */

typedef struct bh__publisher {
    struct {
        int64_t ledger_publisher; /* the publisher in the ledger; 0: the channel is closed */
        bh__assembler returned;
    } channels[BH__PUBLISH_CHANNELS];
    char return_text[BH__REPLY_TEXT]; /* of the last basic.return */
    bh__report problem;               /* why a channel or the connection ended, or a rung could not be declared */
} bh__publisher;

void bh__publisher_free(bh__publisher *self);
/* Returns 1 if all channels are open. */
int bh__publisher_is_open(const bh__publisher *self);
/* Forgets the channels when the connection ends. Copies that are not confirmed become due again. */
void bh__publisher_end(bh__publisher *self, bh__context *context, bh_ending ending);
/* Handles a method or content frame on one of the channels. */
void bh__publisher_on_frame(bh__publisher *self, bh__context *context, const bh__frame *frame,
                            const amqp_method_t *method);
/* Writes the copy of a message to the channel of this publisher. */
void bh__publisher_send(const bh__publisher *self, bh__context *context, int64_t ledger_publisher,
                        const bh_message *message);
/* Returns a sentence, and in *status the reason, why the broker did not accept a copy. Valid
 * until the next step. */
bh_bytes bh__publisher_explain(const bh__publisher *self, const bh__context *context, const bh_step *step,
                               const struct bh__copy *copy, bh_status *status);

#endif
