/* Entries: messages in a queue, in its lists. */
#include "model/queue.h"

#include <stdlib.h>

void model_list_append(model_list *self, model_entry *entry)
{
    entry->next = NULL;
    entry->previous = self->last;
    *(self->last ? &self->last->next : &self->first) = entry;
    self->last = entry;
    self->count++;
}

void model_list_remove(model_list *self, model_entry *entry)
{
    *(entry->previous ? &entry->previous->next : &self->first) = entry->next;
    *(entry->next ? &entry->next->previous : &self->last) = entry->previous;
    entry->next = entry->previous = NULL;
    self->count--;
}

void model_entry_free(model_entry *self)
{
    if (self->queue)
        model_note(self->queue->vhost->broker, MODEL_FATE_REMOVED, self->queue, self->message);
    model_message_release(self->message);
    free(self);
}
