/* Letters: messages that left a queue, before they are published. */
#include "model/letters.h"

#include "model/deaths.h"

#include <stdlib.h>

/* A topology can multiply a message that expires at once in each queue. So the hops within one
 * event have a bound. */
enum { MOST_HOPS = 10000 };

void model_letter_free(model_letter *self)
{
    model_message_release(self->message);
    bh__store_free(&self->names);
    free(self);
}

void model_letters_forget(model_entry *entry)
{
    if (entry->letter)
        model_letter_free(entry->letter);
    entry->letter = NULL;
}

void model_letters_free(model *self)
{
    model_letter *letter;
    while ((letter = self->first_letter) != NULL) {
        self->first_letter = letter->next;
        model_letter_free(letter);
    }
    self->last_letter = NULL;
}

/* Returns the dead letter of a message that leaves the queue; NULL if memory ran out. */
model_letter *model_letter_new(model_queue *queue, const model_entry *entry, model_reason reason)
{
    const model_queue_settings *settings = &queue->settings;
    model *broker = queue->vhost->broker;
    model_letter *self = calloc(1, sizeof *self);
    if (!self)
        return NULL;
    model_dying dying = {.reason = reason,
                         .queue = queue->name,
                         .exchange = settings->exchange,
                         .routing_key = settings->key,
                         .has_key = settings->has_key,
                         .now_s = model_epoch_s(broker),
                         .failed = entry->failed};
    if (broker->version->counting == MODEL_COUNTS_RETURNS)
        dying.failed = -1;
    self->vhost = queue->vhost;
    self->reason = reason;
    self->message = model_death_record(broker->version, entry->message, &dying);
    if (!self->message) {
        free(self);
        return NULL;
    }
    return self;
}

void model_letters_add(model_queue *queue, model_entry *entry, model_reason reason)
{
    model *broker = queue->vhost->broker;
    if (queue->settings.is_at_least_once && reason != MODEL_MAXLEN) {
        entry->reason = reason;
        model_list_append(&queue->discards, entry);
        model_queue_touch(queue);
        return;
    }
    int is_hop = entry->event == broker->event, is_lost = is_hop && ++broker->hops > MOST_HOPS;
    model_letter *letter = queue->settings.has_exchange && !is_lost ? model_letter_new(queue, entry, reason) : NULL;
    if (!letter) {
        model_note(broker, MODEL_FATE_DROPPED, queue, entry->message);
        model_entry_free(entry);
        return;
    }
    model_entry_free(entry);
    *(broker->last_letter ? &broker->last_letter->next : &broker->first_letter) = letter;
    broker->last_letter = letter;
}
