/* Letters: messages that left a queue, before they are published. */
#ifndef BACKHOP_COMMAND_MODEL_LETTERS_H
#define BACKHOP_COMMAND_MODEL_LETTERS_H

#include "model/queue.h"

struct model_letter {
    model_letter *next; /* of those at most once */
    model_vhost *vhost;
    model_message *message;
    model_reason reason;
    int64_t due_ms;  /* of one at least once: the next attempt */
    bh__store names; /* the targets that have it, each with a zero byte */
};

/* Returns the dead letter of a message that leaves the queue; NULL if memory ran out. */
model_letter *model_letter_new(model_queue *queue, const model_entry *entry, model_reason reason);
void model_letter_free(model_letter *self);

/* Takes an entry that is in no list. Without a dead-letter exchange it is gone. */
void model_letters_add(model_queue *queue, model_entry *entry, model_reason reason);
/* Frees the dead letter in flight of an entry. */
void model_letters_forget(model_entry *entry);
/* Frees all that are pending. */
void model_letters_free(model *self);

#endif
