/* Transactions: what a channel does at its next commit, in order. Internal. */
#ifndef BACKHOP_COMMAND_MODEL_TRANSACTIONS_H
#define BACKHOP_COMMAND_MODEL_TRANSACTIONS_H

#include "model/settling.h"

typedef struct model_pending {
    struct model_pending *next;
    model_message *message; /* to be published; NULL: a settlement */
    int is_mandatory;
    uint64_t tag;
    int is_multiple;
    model_verdict verdict;
} model_pending;

/* Adds a copy, which holds its message. Returns 0 if memory runs out. */
int model_transactions_add(model_channel *channel, const model_pending *pending);
/* Takes the oldest one; NULL if there is none. */
model_pending *model_transactions_take(model_channel *channel);
void model_pending_free(model_pending *self);
/* Forgets all. */
void model_transactions_clear(model_channel *channel);

#endif
