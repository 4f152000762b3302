/* Common parts of the model: its time, its tape, its watcher, and the list of queues that have
 * work. */
#include "model/broker.h"

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
