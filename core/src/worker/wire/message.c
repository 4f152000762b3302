#include "worker/wire/message.h"

#include "base/memory.h"

#include <backhop/adapter/history.h>
#include <stdlib.h>

void bh__message_keep(bh_message *self)
{
    atomic_fetch_add_explicit(&self->references, 1, memory_order_relaxed);
}

void bh_message_free(bh_message *self)
{
    if (!self || atomic_fetch_sub_explicit(&self->references, 1, memory_order_acq_rel) > 1)
        return;
    bh_policy_free(self->policy);
    free(self->error);
    free(self->error_class);
    free(self->copy);
    free(self);
}

bh_bytes bh_message_body(const bh_message *self)
{
    return self ? self->body : bh_str("");
}

int bh_message_redelivered(const bh_message *self)
{
    return self && self->redelivered;
}

int64_t bh_message_number(const bh_message *self)
{
    return self ? self->entry : 0;
}

bh_status bh__message_set_error(bh_message *self, bh_bytes error)
{
    /* A little more than the plan keeps, so that it is the plan that cuts. */
    size_t size = error.size < BH_HISTORY_MOST_ERROR_BYTES + 4 ? error.size : BH_HISTORY_MOST_ERROR_BYTES + 4;
    char *copy = size ? malloc(size) : NULL;
    if (size && !copy)
        return BH_ERR_NO_MEMORY;
    if (size)
        memcpy(copy, error.data, size);
    free(self->error);
    self->error = copy;
    self->error_size = size;
    return BH_OK;
}

bh_status bh__message_set_error_class(bh_message *self, bh_bytes error_class)
{
    char *copy = error_class.size ? bh__duplicate(error_class.data, error_class.size) : NULL;
    if (error_class.size && !copy)
        return BH_ERR_NO_MEMORY;
    free(self->error_class);
    self->error_class = copy;
    self->error_class_size = error_class.size;
    return BH_OK;
}

void bh__message_list_push(bh__message_list *self, bh_message *message)
{
    message->next = NULL;
    if (self->last)
        self->last->next = message;
    else
        self->first = message;
    self->last = message;
    self->count++;
}

bh_message *bh__message_list_pop(bh__message_list *self)
{
    bh_message *first = self->first;
    if (!first)
        return NULL;
    self->first = first->next;
    if (!self->first)
        self->last = NULL;
    self->count--;
    return first;
}

void bh__message_list_clear(bh__message_list *self)
{
    for (bh_message *message; (message = bh__message_list_pop(self));)
        bh_message_free(message);
}

void bh__message_list_append(bh__message_list *self, bh__message_list *from)
{
    if (!from->first)
        return;
    if (self->last)
        self->last->next = from->first;
    else
        self->first = from->first;
    self->last = from->last;
    self->count += from->count;
    *from = (bh__message_list){.first = NULL};
}
