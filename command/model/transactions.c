/* Transactions: a list. channel.c executes it at the commit. */
#include "model/transactions.h"

#include <stdlib.h>

int model_transactions_add(model_channel *channel, const model_pending *pending)
{
    model_pending *added = malloc(sizeof *added), **at = &channel->pending;
    if (!added)
        return 0;
    *added = *pending;
    added->next = NULL;
    if (added->message)
        model_message_hold(added->message);
    if (channel->last_pending)
        at = &channel->last_pending->next;
    *at = channel->last_pending = added;
    return 1;
}

model_pending *model_transactions_take(model_channel *channel)
{
    model_pending *taken = channel->pending;
    if (!taken)
        return NULL;
    channel->pending = taken->next;
    if (!channel->pending)
        channel->last_pending = NULL;
    return taken;
}

void model_pending_free(model_pending *self)
{
    model_message_release(self->message);
    free(self);
}

void model_transactions_clear(model_channel *channel)
{
    model_pending *taken;
    while ((taken = model_transactions_take(channel)) != NULL)
        model_pending_free(taken);
}
