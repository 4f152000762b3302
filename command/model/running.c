/* Running: the work that an event leaves, until there is none. */
#include "model/broker.h"

#include "model/consumers.h"
#include "model/dead_letters.h"
#include "model/expiry.h"
#include "model/limits.h"
#include "model/queue.h"

/* A message with TTL 0 that no consumer took expires now. Each publish runs the queue, so the last
 * messages of a level are the ones that have just arrived. Returns 1 if one was immediate. */
static int end_immediate(model_queue *queue)
{
    int is_one = 0;
    for (size_t i = 0; i < queue->level_count; i++)
        for (model_entry *entry = queue->levels[i].last; entry && entry->is_fresh; entry = entry->previous) {
            is_one = is_one || entry->is_immediate;
            entry->is_immediate = entry->is_fresh = 0;
        }
    return is_one;
}

static void run_queue(model_queue *queue)
{
    if (queue->is_quorum && queue->vhost->broker->is_minority)
        return;
    do {
        model_expiry_retry(queue);
        model_expiry_run(queue);
        model_consumers_deliver(queue);
    } while (end_immediate(queue));
    model_limits_enforce(queue);
    model_expiry_run(queue); /* a message behind the dropped messages may have expired */
    model_dead_letters_resend(queue);
}

/* Takes a dirty queue from the list; NULL if there is none. */
static model_queue *next_queue(model *self)
{
    model_queue *queue = self->first_dirty;
    if (!queue)
        return NULL;
    self->first_dirty = queue->next_dirty;
    if (!self->first_dirty)
        self->last_dirty = NULL;
    queue->is_dirty = 0;
    return queue;
}

void model_run(model *self)
{
    model_queue *queue;
    if (self->is_settling)
        return;
    self->is_settling = 1;
    while ((queue = next_queue(self)) != NULL || model_dead_letters_publish(self))
        if (queue)
            run_queue(queue);
    self->is_settling = 0;
    self->event++;
    self->hops = 0;
}
