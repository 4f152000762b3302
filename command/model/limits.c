/* Limits: a classic queue refuses a message that does not fit. A quorum queue takes it, and refuses
 * the next one. */
#include "model/limits.h"

#include "model/letters.h"
#include "model/queue.h"

/* Returns 1 if the ready messages and `more` are over a limit. */
static int is_over(const model_queue *queue, size_t more, size_t more_bytes)
{
    const model_queue_settings *settings = &queue->settings;
    size_t count = queue->ready_count + queue->delayed.count + queue->discards.count + more;
    return (settings->max_length >= 0 && count > (uint64_t)settings->max_length) ||
           (settings->max_bytes >= 0 && queue->ready_bytes + more_bytes > (uint64_t)settings->max_bytes);
}

/* A quorum queue lets publishers in again at four fifths of its limits. */
static int is_far_below(const model_queue *queue)
{
    const model_queue_settings *settings = &queue->settings;
    size_t count = queue->ready_count + queue->delayed.count + queue->discards.count;
    return (settings->max_length < 0 || count <= (uint64_t)(0.8 * (double)settings->max_length)) &&
           (settings->max_bytes < 0 || queue->ready_bytes <= (uint64_t)(0.8 * (double)settings->max_bytes));
}

static int is_rejecting(const model_queue *queue, const model_message *message, int is_tracked)
{
    if (queue->settings.overflow == MODEL_DROP_HEAD)
        return 0;
    return queue->is_quorum ? is_tracked && queue->is_blocked : is_over(queue, 1, model_message_size(message));
}

int model_limits_publish(model_queue *queue, model_message *message, int is_tracked)
{
    int is_rejected = is_rejecting(queue, message, is_tracked);
    if (is_rejected && (queue->is_quorum || queue->settings.overflow != MODEL_REJECT_PUBLISH_DLX))
        return 0;
    model_entry *entry = model_queue_push(queue, message);
    if (!entry)
        return 0;
    model_queue_touch(queue);
    if (is_rejected) {
        model_queue_take(queue, entry);
        model_letters_add(queue, entry, MODEL_MAXLEN);
        return 0;
    }
    return 1;
}

void model_limits_enforce(model_queue *queue)
{
    if (queue->settings.overflow == MODEL_DROP_HEAD) {
        queue->is_blocked = 0;
        while (queue->ready_count > 0 && is_over(queue, 0, 0))
            model_letters_add(queue, model_queue_pop(queue), MODEL_MAXLEN);
    } else if (queue->is_quorum && is_over(queue, 0, 0)) {
        queue->is_blocked = 1;
    } else if (is_far_below(queue)) {
        queue->is_blocked = 0;
    }
}
