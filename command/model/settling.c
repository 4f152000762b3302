/* Settling: counts of quorum queues by version, limits, and the place of a returned message. */
#include "model/settling.h"

#include "model/letters.h"
#include "model/expiry.h"
#include "model/holding.h"
#include "model/queue.h"

static void increment(int64_t *count)
{
    *count = *count < 0 ? 1 : *count + 1;
}

/* Returns 1 if the verdict says that the delivery failed, as the version sees it. */
static int is_failure(model_counting counting, model_verdict verdict)
{
    switch (verdict) {
    case MODEL_LOST:
    case MODEL_REJECT_DISCARD:
        return 1;
    case MODEL_NACK_DISCARD:
        return counting != MODEL_COUNTS_FAILURES;
    case MODEL_REJECT_REQUEUE:
        return counting == MODEL_COUNTS_FAILURES;
    default:
        return 0;
    }
}

/* Returns 1 and delays the message if the queue delays its retry. */
static int delays(model_queue *queue, model_entry *entry, int is_failed)
{
    const model_queue_settings *settings = &queue->settings;
    if (settings->retrying == MODEL_RETRY_AT_ONCE || (settings->retrying == MODEL_RETRY_FAILED && !is_failed) ||
        (settings->retrying == MODEL_RETRY_RETURNED && is_failed))
        return 0;
    int64_t times = entry->failed > 1 ? entry->failed : 1;
    int64_t delay_ms = settings->retry_min_ms > settings->retry_max_ms / times ? settings->retry_max_ms
                                                                               : settings->retry_min_ms * times;
    entry->ready_ms = model_later(queue->vhost->broker->now_ms, delay_ms);
    model_expiry_delay(queue, entry);
    return 1;
}

/* Returns 1 if the client's return goes to the back: without a limit the log must not grow. */
static int goes_back(const model_queue *queue, model_counting counting, model_verdict verdict)
{
    return queue->settings.delivery_limit == INT64_MAX &&
           (verdict == MODEL_NACK_REQUEUE || (verdict == MODEL_REJECT_REQUEUE && counting != MODEL_COUNTS_FAILURES));
}

static void return_to_quorum(model_queue *queue, model_entry *entry, model_verdict verdict)
{
    model_counting counting = queue->vhost->broker->version->counting;
    int is_failed = is_failure(counting, verdict), is_back = goes_back(queue, counting, verdict);
    increment(&entry->acquired);
    if (is_failed)
        increment(&entry->failed);
    int64_t counted = counting == MODEL_COUNTS_FAILURES ? entry->failed : entry->acquired;
    if (counted > queue->settings.delivery_limit)
        model_letters_add(queue, entry, MODEL_DELIVERY_LIMIT);
    else if (is_back || !delays(queue, entry, is_failed))
        model_queue_return(queue, entry, is_back);
}

static int counts_here(const model_queue *queue)
{
    return queue->is_quorum || queue->vhost->broker->version->counts_in_classic;
}

void model_settling_end(model_entry *entry, model_verdict verdict)
{
    model_queue *queue = entry->queue;
    if (!queue || verdict == MODEL_ACK) {
        if (queue)
            model_queue_touch(queue);
        model_entry_free(entry);
        return;
    }
    model_queue_touch(queue);
    if (verdict == MODEL_LOST || verdict == MODEL_TIMED_OUT)
        model_note(queue->vhost->broker, MODEL_FATE_RETURNED, queue, entry->message);
    if (verdict == MODEL_NACK_DISCARD || verdict == MODEL_REJECT_DISCARD) {
        if (counts_here(queue) && is_failure(queue->vhost->broker->version->counting, verdict))
            increment(&entry->failed);
        model_letters_add(queue, entry, MODEL_REJECTED);
    } else if (queue->is_quorum) {
        return_to_quorum(queue, entry, verdict);
    } else {
        if (counts_here(queue) && is_failure(queue->vhost->broker->version->counting, verdict))
            increment(&entry->failed);
        model_queue_return(queue, entry, 0);
    }
}

void model_settling_move_leader(model_queue *queue)
{
    for (size_t left = queue->unacked.count; queue->is_quorum && left > 0 && queue->unacked.first; left--) {
        model_entry *entry = queue->unacked.first;
        if (!model_holding_forsake(entry->holder, entry))
            return;
        model_settling_end(entry, MODEL_LOST);
    }
}

/* Ends deliveries in the order of their tags. Returns to a classic queue go backwards: each is
 * inserted before the last. */
static void end_all(model_list *taken, model_verdict verdict)
{
    int is_return = verdict != MODEL_ACK && verdict != MODEL_NACK_DISCARD && verdict != MODEL_REJECT_DISCARD;
    model_entry *other;
    for (model_entry *entry = taken->last; entry && is_return; entry = other) {
        other = entry->previous;
        if (!entry->queue || entry->queue->is_quorum)
            continue;
        model_list_remove(taken, entry);
        model_settling_end(entry, verdict);
    }
    while ((other = taken->first) != NULL) {
        model_list_remove(taken, other);
        model_settling_end(other, verdict);
    }
}

int model_settling_do(model_channel *channel, uint64_t tag, int is_multiple, model_verdict verdict)
{
    model_list taken = {.first = NULL};
    if (tag == 0 && is_multiple) {
        model_settling_all(channel, verdict);
        return 1;
    }
    int64_t place = model_holding_find(channel, tag);
    if (place < 0)
        return 0;
    if (!is_multiple) {
        model_settling_end(model_holding_take(channel, (size_t)place), verdict);
        return 1;
    }
    for (size_t i = channel->held_begin, end = (size_t)place; i <= end; i++)
        if (channel->held[i].entry)
            model_list_append(&taken, model_holding_take(channel, i));
    end_all(&taken, verdict);
    return 1;
}

void model_settling_all(model_channel *channel, model_verdict verdict)
{
    model_list taken = {.first = NULL};
    for (size_t i = channel->held_begin, end = channel->held_end; i < end; i++)
        if (channel->held[i].entry)
            model_list_append(&taken, model_holding_take(channel, i));
    end_all(&taken, verdict);
}
