/* Timers: the next time at which something happens by itself, and what happens then. */
#include "model/broker.h"

#include "model/closing.h"
#include "model/dead_letters.h"
#include "model/expiry.h"
#include "model/holding.h"
#include "model/output.h"
#include "model/publishing.h"
#include "model/settling.h"

/* Returns the time at which the oldest delivery of a queue times out. Without timeouts of
 * consumers' own, the first one is it. */
static int64_t timeout_ms(const model_queue *queue, const model_entry **out)
{
    int64_t next_ms = INT64_MAX;
    *out = NULL;
    for (const model_entry *entry = queue->unacked.first; entry; entry = entry->next) {
        int64_t limit_ms = queue->settings.consumer_timeout_ms;
        if (entry->consumer && entry->consumer->timeout_ms >= 0)
            limit_ms = entry->consumer->timeout_ms;
        int64_t at_ms = model_later(entry->delivered_ms, limit_ms);
        if (at_ms < next_ms) {
            next_ms = at_ms;
            *out = entry;
        }
        if (!queue->has_own_timeouts)
            break;
    }
    return next_ms;
}

/* 4.3 has a timeout for quorum queues alone. */
static int has_timeout(const model_queue *queue)
{
    return queue->is_quorum || !queue->vhost->broker->version->cancels_on_timeout;
}

static int64_t lease_ms(const model_queue *queue)
{
    if (queue->settings.expires_ms < 0 || queue->consumer_count > 0)
        return INT64_MAX;
    return model_later(queue->used_ms, queue->settings.expires_ms);
}

static int64_t queue_next_ms(const model_queue *queue)
{
    const model_entry *entry;
    if (queue->is_quorum && queue->vhost->broker->is_minority)
        return INT64_MAX;
    int64_t next_ms = model_earlier(model_expiry_next_ms(queue), model_dead_letters_next_ms(queue));
    if (has_timeout(queue))
        next_ms = model_earlier(next_ms, timeout_ms(queue, &entry));
    return model_earlier(next_ms, lease_ms(queue));
}

static int64_t link_next_ms(const model_link *link)
{
    int64_t next_ms = link->stage == MODEL_CLOSING ? link->close_by_ms : INT64_MAX;
    for (size_t i = 0; i < link->channel_capacity; i++)
        if (link->channels[i])
            next_ms = model_earlier(next_ms, model_publishing_next_ms(link->channels[i]));
    return next_ms;
}

int64_t model_next_ms(const model *self)
{
    int64_t next_ms = INT64_MAX;
    for (size_t i = 0; i < self->vhosts.count; i++) {
        const model_vhost *vhost = self->vhosts.items[i].object;
        for (size_t j = 0; j < vhost->queues.count && !self->is_stopped; j++)
            next_ms = model_earlier(next_ms, queue_next_ms(vhost->queues.items[j].object));
    }
    for (const model_link *link = self->links; link; link = link->next)
        next_ms = model_earlier(next_ms, link_next_ms(link));
    return next_ms > self->now_ms ? next_ms : self->now_ms;
}

static void refuse_delivery(const model_entry *entry, int64_t limit_ms)
{
    model_channel *channel = entry->holder;
    channel->link->method = 0;
    model_refuse(
        channel, 406,
        "delivery acknowledgement on channel %d timed out. Timeout value used: %lld ms. This timeout value can "
        "be configured, see consumers doc guide to learn more",
        channel->number, (long long)limit_ms);
}

/* 4.3 takes the message back and cancels the consumer, if its client accepts basic.cancel. */
static int take_back(model_queue *queue, model_entry *entry)
{
    model_channel *channel = entry->holder;
    model_consumer *consumer = entry->consumer;
    if (!queue->vhost->broker->version->cancels_on_timeout || !consumer || !channel->link->has_cancel_notify)
        return 0;
    amqp_basic_cancel_t notice = {.consumer_tag = bh__to_amqp(consumer->tag), .nowait = 1};
    int64_t now_ms = queue->vhost->broker->now_ms;
    if (consumer->timed_out == 0 || consumer->told_ms < now_ms)
        model_send(channel->link, channel->number, AMQP_BASIC_CANCEL_METHOD, &notice);
    consumer->told_ms = now_ms;
    if (!model_holding_time_out(channel, entry))
        channel->link->is_broken = 1;
    else
        model_settling_end(entry, MODEL_TIMED_OUT);
    return 1;
}

static void end_timed_out(model_queue *queue)
{
    const model_entry *found;
    model *broker = queue->vhost->broker;
    while (has_timeout(queue) && timeout_ms(queue, &found) <= broker->now_ms && found) {
        model_entry *entry = model_holding_entry(found->holder, found->tag);
        int64_t limit_ms = broker->now_ms - found->delivered_ms;
        if (!entry || entry->holder->link->is_broken)
            return;
        if (!take_back(queue, entry))
            refuse_delivery(entry, limit_ms);
    }
}

static void run_queue(model_queue *queue)
{
    if (lease_ms(queue) <= queue->vhost->broker->now_ms) {
        model_end_queue(queue);
        return;
    }
    end_timed_out(queue);
    model_queue_touch(queue);
}

static void run_queues(model *self)
{
    for (size_t i = 0; i < self->vhosts.count; i++) {
        const model_vhost *vhost = self->vhosts.items[i].object;
        for (size_t j = vhost->queues.count; j-- > 0;)
            if (j < vhost->queues.count && queue_next_ms(vhost->queues.items[j].object) <= self->now_ms)
                run_queue(vhost->queues.items[j].object);
    }
}

static void run_link(model_link *link)
{
    int64_t now_ms = link->broker->now_ms;
    if (link->stage == MODEL_CLOSING && link->close_by_ms <= now_ms)
        link->stage = MODEL_CLOSED;
    for (size_t i = 0; i < link->channel_capacity; i++)
        if (link->channels[i] && model_publishing_next_ms(link->channels[i]) <= now_ms)
            model_publishing_confirm(link->channels[i]);
}

static void run_due(model *self)
{
    if (!self->is_stopped)
        run_queues(self);
    for (model_link *link = self->links; link; link = link->next)
        run_link(link);
    model_run(self);
}

/* A queue whose timer stays due would hold time up for ever: a defect, which is bounded. */
enum { MOST_ROUNDS = 1000 };

void model_advance(model *self, int64_t now_ms)
{
    int64_t next_ms;
    int rounds = 0;
    while ((next_ms = model_next_ms(self)) <= now_ms) {
        rounds = next_ms > self->now_ms ? 0 : rounds + 1;
        if (rounds > MOST_ROUNDS)
            break;
        self->now_ms = next_ms;
        run_due(self);
    }
    if (now_ms > self->now_ms)
        self->now_ms = now_ms;
}

int model_is_idle(const model *self)
{
    if (self->unacked_count > 0 || self->unconfirmed_count > 0)
        return 0;
    for (const model_link *link = self->links; link; link = link->next)
        if (bh__buffer_size(&link->out) > 0 || bh__buffer_size(&link->in) > 0)
            return 0;
    return 1;
}
