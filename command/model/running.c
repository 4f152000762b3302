/* Running: the work that an event leaves, until there is none. */
#include "model/broker.h"

#include "model/consumers.h"
#include "model/dead_letters.h"
#include "model/expiry.h"
#include "model/limits.h"
#include "model/queue.h"

/* A message with TTL 0 that no consumer took expires now. Each publish runs the queue, so the last messages of a level are
 * the ones that have just arrived. Returns 1 if one was immediate. */
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

void model_queue_touch(model_queue *self)
{
    model *broker = self->vhost->broker;
    if (self->is_dirty)
        return;
    self->is_dirty = 1;
    self->next_dirty = NULL;
    *(broker->last_dirty ? &broker->last_dirty->next_dirty : &broker->first_dirty) = self;
    broker->last_dirty = self;
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

void model_note(const model *self, model_fate fate, const model_queue *queue, const model_message *message)
{
    if (self->settings.watch && message)
        self->settings.watch(self->settings.watch_data, fate, queue ? queue->name : bh_str(""),
                             (bh_bytes){message->body->data, message->body->size});
}

unsigned model_choose(model *self, unsigned count)
{
    if (self->tape_used >= self->settings.tape_size || count == 0)
        return 0;
    return self->settings.tape[self->tape_used++] % count;
}

int64_t model_later(int64_t now_ms, int64_t span_ms)
{
    return now_ms > INT64_MAX - span_ms ? INT64_MAX : now_ms + span_ms;
}

int64_t model_epoch_s(const model *self)
{
    return model_later(self->settings.epoch_ms, self->now_ms) / 1000;
}
