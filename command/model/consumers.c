/* Consumers: in turns, the highest priority first, each up to its prefetch. */
#include "model/consumers.h"

#include "model/expiry.h"
#include "model/holding.h"
#include "model/output.h"
#include "model/queue.h"

#include <stdlib.h>

static void free_consumer(model_consumer *self)
{
    free(self->text);
    free(self);
}

/* Makes room in the lists of queue and channel. */
static int reserve(model_channel *channel, model_queue *queue)
{
    void *of_channel = channel->consumers, *of_queue = queue->consumers;
    int is_there =
        bh__reserve(&of_channel, &channel->consumer_capacity, sizeof *channel->consumers,
                    channel->consumer_count + 1) &&
        bh__reserve(&of_queue, &queue->consumer_capacity, sizeof *queue->consumers, queue->consumer_count + 1);
    channel->consumers = of_channel;
    queue->consumers = of_queue;
    return is_there;
}

model_consumer *model_consumers_add(model_channel *channel, model_queue *queue, const model_consuming *consuming)
{
    model_consumer *self = calloc(1, sizeof *self);
    if (!self)
        return NULL;
    *self = (model_consumer){.channel = channel,
                             .queue = queue,
                             .has_no_ack = consuming->has_no_ack,
                             .is_exclusive = consuming->is_exclusive,
                             .priority = consuming->priority,
                             .prefetch = channel->prefetch,
                             .timeout_ms = consuming->timeout_ms};
    self->text = model_name_copy(consuming->tag);
    self->tag = (bh_bytes){self->text, consuming->tag.size};
    if (!self->text || !reserve(channel, queue)) {
        free_consumer(self);
        return NULL;
    }
    channel->consumers[channel->consumer_count++] = self;
    queue->consumers[queue->consumer_count++] = self;
    if (self->timeout_ms >= 0)
        queue->has_own_timeouts = 1;
    if (queue->settings.is_single_active && !queue->active)
        queue->active = self;
    model_queue_touch(queue);
    return self;
}

static void remove_from(model_consumer **items, size_t *count, const model_consumer *gone)
{
    for (size_t i = 0; i < *count; i++)
        if (items[i] == gone) {
            memmove(items + i, items + i + 1, (--*count - i) * sizeof *items);
            return;
        }
}

/* Chooses the next single active consumer: of the highest priority, the oldest. */
static void activate(model_queue *queue)
{
    queue->active = NULL;
    for (size_t i = 0; i < queue->consumer_count && queue->settings.is_single_active; i++)
        if (!queue->active || queue->consumers[i]->priority > queue->active->priority)
            queue->active = queue->consumers[i];
}

int model_consumers_remove(model_consumer *self)
{
    model_queue *queue = self->queue;
    remove_from(self->channel->consumers, &self->channel->consumer_count, self);
    remove_from(queue->consumers, &queue->consumer_count, self);
    model_holding_forget(self->channel, self);
    if (queue->active == self)
        activate(queue);
    queue->used_ms = queue->vhost->broker->now_ms;
    model_queue_touch(queue);
    free_consumer(self);
    return queue->is_auto_delete && queue->consumer_count == 0;
}

model_consumer *model_consumers_find(const model_channel *channel, bh_bytes tag)
{
    for (size_t i = 0; i < channel->consumer_count; i++)
        if (bh__same(channel->consumers[i]->tag, tag))
            return channel->consumers[i];
    return NULL;
}

static int may_have_more(const model_queue *queue, const model_consumer *consumer)
{
    const model_channel *channel = consumer->channel;
    if (queue->active && queue->active != consumer)
        return 0;
    if (channel->is_closing || channel->link->stage != MODEL_RUNNING || channel->link->is_broken ||
        consumer->timed_out > 0)
        return 0;
    if (consumer->has_no_ack)
        return 1;
    return (consumer->prefetch == 0 || consumer->held < consumer->prefetch) &&
           (channel->shared_prefetch == 0 || channel->consumed < channel->shared_prefetch);
}

/* Returns the next consumer, and moves it behind the others; NULL if none may have more. */
static model_consumer *next_consumer(model_queue *queue)
{
    model_consumer *found = NULL;
    for (size_t i = 0; i < queue->consumer_count; i++) {
        model_consumer *each = queue->consumers[i];
        if ((!found || each->priority > found->priority) && may_have_more(queue, each))
            found = each;
    }
    if (!found)
        return NULL;
    size_t count = queue->consumer_count;
    remove_from(queue->consumers, &count, found);
    queue->consumers[count] = found;
    return found;
}

model_counts model_consumers_counts(const model_entry *entry, int is_get, int *is_redelivered)
{
    const model_queue *queue = entry->queue;
    const model_version *version = queue->vhost->broker->version;
    model_counts counts = {-1, -1};
    /* A dead letter that failed before is a redelivery, unless a consumer waited for it. */
    *is_redelivered = entry->is_redelivered || (version->counts_in_classic && entry->failed > 0 && !entry->is_fresh);
    if (!queue->is_quorum)
        return counts;
    /* A failed delivery in another queue counts as an acquisition until this queue counts its
     * own. */
    int64_t acquired = entry->acquired >= 0 ? entry->acquired : entry->failed;
    *is_redelivered = acquired > 0;
    if (version->counting == MODEL_COUNTS_FAILURES)
        return (model_counts){entry->failed, acquired};
    if (acquired < 0 && is_get && version->counts_first_get)
        acquired = 0;
    return (model_counts){acquired, -1};
}

static void deliver(model_consumer *consumer, model_entry *entry)
{
    model_channel *channel = consumer->channel;
    model_message *message = entry->message;
    int is_redelivered;
    model_counts counts = model_consumers_counts(entry, 0, &is_redelivered);
    amqp_basic_deliver_t deliver = {.consumer_tag = bh__to_amqp(consumer->tag),
                                    .delivery_tag = channel->next_tag,
                                    .redelivered = is_redelivered,
                                    .exchange = bh__to_amqp(model_message_text(message, message->exchange)),
                                    .routing_key = bh__to_amqp(model_message_key(message, 0))};
    model_send_content(channel->link, channel->number, AMQP_BASIC_DELIVER_METHOD, &deliver, message, counts);
    if (consumer->has_no_ack)
        model_entry_free(entry);
    else
        model_holding_add(channel, entry, consumer);
    channel->next_tag++;
}

void model_consumers_deliver(model_queue *queue)
{
    model_consumer *consumer;
    while (queue->ready_count > 0 && (consumer = next_consumer(queue)) != NULL) {
        if (!model_holding_reserve(consumer->channel)) {
            consumer->channel->link->is_broken = 1;
            return;
        }
        deliver(consumer, model_queue_pop(queue));
        model_expiry_run(queue); /* the next message may have expired behind this one */
    }
}
