/* Publisher: the channels that copies go on, and what the broker answers to them. Internal. */
#ifndef BACKHOP_WORKER_ENGINE_PUBLISHER_H
#define BACKHOP_WORKER_ENGINE_PUBLISHER_H

#include "engine/context.h"
#include "wire/assembler.h"

/* A broker works on what a channel publishes in one process: with one channel alone that would be the bound. */
enum { BH__PUBLISH_CHANNELS = 2, BH__FIRST_PUBLISH_CHANNEL = 1 };

enum { BH__REPLY_TEXT = 264 }; /* bytes for a reply's code and text */

typedef struct bh__publisher {
    struct {
        int64_t number; /* in the ledger; 0: it is not open */
        bh__assembler returned;
    } channels[BH__PUBLISH_CHANNELS];
    char return_text[BH__REPLY_TEXT]; /* of the last basic.return */
    bh__report words;                 /* why a channel or the connection ended last, or a rung could not be declared */
} bh__publisher;

void bh__publisher_free(bh__publisher *self);
/* Whether all its channels are open. */
int bh__publisher_is_open(const bh__publisher *self);
/* The connection is gone, or is given up: what was not confirmed is to be sent again. */
void bh__publisher_end(bh__publisher *self, bh__context *context, bh_ending ending);
/* A method or content frame on one of its channels. */
void bh__publisher_on_frame(bh__publisher *self, bh__context *context, const bh__frame *frame,
                            const amqp_method_t *method);
/* Writes the copy of a message to the channel that has this number in the ledger. */
void bh__publisher_send(const bh__publisher *self, bh__context *context, int64_t number, const bh_message *message);
/* What the ledger tells of a copy that was not taken, as a status and a sentence; valid until the next step. */
bh_bytes bh__publisher_explain(const bh__publisher *self, const bh__context *context, const struct bh__copy *copy,
                               bh_status *status);

#endif
