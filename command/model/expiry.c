/*
 * Expiry: RabbitMQ looks at the head alone, so a message with a short TTL waits for those before
 * it. A classic queue with priorities stops at the first unexpired head, from the highest priority
 * down. 4.3 looks at each priority of a quorum queue.
 *
 * A classic queue looks at its head if a message left or came back, or arrived in the empty queue.
 * It looks too when the head of the last look expires. So with priorities a new message that
 * overtakes the others expires late.
 */
#include "model/expiry.h"

#include "model/letters.h"
#include "model/queue.h"

static int is_expired(const model_queue *queue, const model_entry *entry)
{
    return entry && entry->expires_ms <= queue->vhost->broker->now_ms && !entry->is_immediate;
}

static void expire(model_queue *queue, model_entry *entry)
{
    model_queue_take(queue, entry);
    model_letters_add(queue, entry, MODEL_EXPIRED);
}

static int has_scan(const model_queue *queue)
{
    return queue->is_quorum && queue->level_count > 2;
}

static int looks_by_event(const model_queue *queue)
{
    return !queue->is_quorum && queue->level_count > 1;
}

void model_expiry_run(model_queue *queue)
{
    model_entry *head;
    if (looks_by_event(queue) && !queue->has_new_head && queue->looks_ms > queue->vhost->broker->now_ms)
        return;
    while (is_expired(queue, head = model_queue_head(queue)))
        model_letters_add(queue, model_queue_pop(queue), MODEL_EXPIRED); /* it has its turn, as a delivery */
    queue->has_new_head = 0;
    queue->looks_ms = head ? head->expires_ms : INT64_MAX;
    if (!has_scan(queue))
        return;
    while (is_expired(queue, queue->returns.first))
        expire(queue, queue->returns.first);
    for (size_t i = queue->level_count; i-- > 0;)
        while (is_expired(queue, queue->levels[i].first))
            expire(queue, queue->levels[i].first);
}

void model_expiry_delay(model_queue *queue, model_entry *entry)
{
    model_entry *before = queue->delayed.last;
    while (before && before->ready_ms > entry->ready_ms)
        before = before->previous;
    entry->holder = NULL;
    entry->consumer = NULL;
    entry->previous = before;
    entry->next = before ? before->next : queue->delayed.first;
    *(entry->previous ? &entry->previous->next : &queue->delayed.first) = entry;
    *(entry->next ? &entry->next->previous : &queue->delayed.last) = entry;
    queue->delayed.count++;
}

void model_expiry_retry(model_queue *queue)
{
    model_entry *entry;
    while ((entry = queue->delayed.first) != NULL && entry->ready_ms <= queue->vhost->broker->now_ms) {
        model_list_remove(&queue->delayed, entry);
        model_queue_return(queue, entry, 0);
    }
}

int64_t model_expiry_next_ms(const model_queue *queue)
{
    const model_entry *head = model_queue_head(queue);
    int64_t next_ms = head ? head->expires_ms : INT64_MAX;
    if (looks_by_event(queue))
        next_ms = queue->looks_ms;
    if (queue->delayed.first)
        next_ms = model_earlier(next_ms, queue->delayed.first->ready_ms);
    for (size_t i = 0; i < queue->level_count && has_scan(queue); i++)
        if (queue->levels[i].first)
            next_ms = model_earlier(next_ms, queue->levels[i].first->expires_ms);
    return next_ms;
}
