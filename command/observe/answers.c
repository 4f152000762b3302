#include "observe/answers.h"

enum { REFUSED_MS = 60000 };

static void on_frame(void *data, const bh__frame *frame, const amqp_method_t *method)
{
    answers *self = data;
    if (frame->channel != CHANNEL_CONSUME || !method)
        return;
    if (method->id == AMQP_CHANNEL_CLOSE_METHOD) {
        bh__link_answer_channel_close(&self->broker->link, CHANNEL_CONSUME, method->decoded, "asking",
                                      &self->broker->problem);
        self->refused_ms = bh__monotonic_ms();
        self->is_open = 0;
        self->sent_ms = 0;
    } else if (method->id == AMQP_QUEUE_UNBIND_OK_METHOD) {
        self->sent_ms = 0;
    }
}

void answers_begin(answers *self, connection *broker)
{
    *self = (answers){.broker = broker};
    broker->on_frame = on_frame;
    broker->data = self;
}

/* Returns the first work queue that may exist; NULL: none. */
static const depth *find_queue(const depths *queues)
{
    for (size_t i = 0; i < queues->count; i++)
        if (queues->items[i].kind == DEPTH_WORK &&
            (queues->items[i].ready >= 0 || queues->items[i].looked_ms == INT64_MIN))
            return &queues->items[i];
    return NULL;
}

void answers_request(answers *self, const depths *queues)
{
    bh__link *link = &self->broker->link;
    int64_t now_ms = bh__monotonic_ms();
    const depth *queue = find_queue(queues);
    if (self->sent_ms || !queue || (self->refused_ms && now_ms - self->refused_ms < REFUSED_MS))
        return;
    amqp_channel_open_t open = {.out_of_band = amqp_empty_bytes};
    amqp_queue_unbind_t unbind = {.queue = amqp_cstring_bytes(queue->name),
                                  .exchange = amqp_cstring_bytes(queues->exchange),
                                  .routing_key = amqp_cstring_bytes("backhop-probe")};
    if (!self->is_open)
        bh__link_send(link, CHANNEL_CONSUME, AMQP_CHANNEL_OPEN_METHOD, &open);
    bh__link_send(link, CHANNEL_CONSUME, AMQP_QUEUE_UNBIND_METHOD, &unbind);
    self->is_open = 1;
    self->sent_ms = now_ms;
}

int64_t answers_silence_ms(const answers *self)
{
    return self->sent_ms ? bh__monotonic_ms() - self->sent_ms : 0;
}

bh_status answers_wait(const answers *self, int64_t until_ms)
{
    bh_status status = BH_OK;
    while (status == BH_OK && self->sent_ms && bh__monotonic_ms() < until_ms && !is_interrupted())
        status = connection_pump(self->broker, until_ms);
    return status;
}
