#include "worker_internal.h"

bh_status bh__worker_read(const bh_worker *self, const bh_message *message, bh_delivery *delivery, bh_history *history)
{
    bh_status status = bh__content_read(delivery, message->exchange, message->routing_key, message->properties);
    if (status == BH_OK && history)
        status = bh_history_read(history, delivery, self->topology);
    return status;
}

bh_status bh__worker_read_in_hand(bh_worker *self, const bh_message *message, bh_bytes *random)
{
    size_t frame_max = self->consume.link.frame_max < self->publish.link.frame_max ? self->consume.link.frame_max
                                                                                   : self->publish.link.frame_max;
    *random = (bh_bytes){bh__worker_draw(self, BH_PLAN_RANDOM_BYTES), BH_PLAN_RANDOM_BYTES};
    bh_status status = bh__worker_read(self, message, self->delivery, self->history);
    if (status == BH_OK)
        status = bh_plan_set_frame_max(self->plan, (int64_t)frame_max);
    return status == BH_OK && !random->data ? BH_ERR_STATE : status;
}

static bh_bytes id_of(bh_worker *self, const bh_message *message)
{
    return bh__worker_read(self, message, self->delivery, self->history) == BH_OK ? bh_history_id(self->history)
                                                                                  : bh_str("");
}

/* It cannot be carried out: the original stays with the broker. */
static void refuse(bh_worker *self, bh_message *message, bh_status status)
{
    bh_bytes text = status == BH_ERR_CHANNEL ? bh_str("the message's properties are malformed")
                    : status == BH_ERR_STATE ? bh_str("the system gives no random bytes")
                                             : bh_status_text(status);
    bh__worker_tell(self, BH_EVENT_REFUSED, status, text, id_of(self, message), 0, 0, 1);
    if (status == BH_ERR_NO_MEMORY || status == BH_ERR_STATE)
        bh__worker_nack(self, message, 1); /* another time, or another worker */
    else
        bh__worker_leave_behind(self, message);
}

static void tell_retried(bh_worker *self)
{
    if (self->tells_retries)
        bh__worker_tell(self, BH_EVENT_RETRIED, BH_OK, bh_str(""), bh_history_id(self->history),
                        bh_plan_attempts(self->plan), bh_plan_delay_ms(self->plan), 1);
}

/* Does what the plan says. BH_OK, else as bh__worker_queue_copy. */
static bh_status carry_out(bh_worker *self, bh_message *message)
{
    switch (bh_plan_action(self->plan)) {
    case BH_ACTION_ACK:
    case BH_ACTION_DROP:
        bh__worker_acknowledge(self, message);
        return BH_OK;
    case BH_ACTION_REJECT:
        tell_retried(self);
        bh__worker_nack(self, message, 0);
        return BH_OK;
    case BH_ACTION_RETURN:
        tell_retried(self);
        bh__worker_reject(self, message, 1);
        return BH_OK;
    case BH_ACTION_RETRY:
    case BH_ACTION_PARK:
    case BH_ACTION_REPLAY:
        return bh__worker_queue_copy(self, message);
    case BH_ACTION_NONE:
        break;
    }
    return BH_ERR_ARGUMENT;
}

static bh_status decide(bh_worker *self, bh_message *message)
{
    bh_bytes error = {message->error ? message->error : "", message->error_size};
    bh_bytes random;
    bh_status status = bh__worker_read_in_hand(self, message, &random);
    if (status == BH_OK)
        status = bh_plan_make(self->plan, self->delivery, self->history, self->policy, self->topology, message->outcome,
                              error, message->retry_after_ms, bh__epoch_ms(), random);
    return status == BH_OK ? carry_out(self, message) : status;
}

static void settle(bh_worker *self, bh_message *message)
{
    if (!bh__worker_holds(self, message)) {
        bh__worker_tell(self, BH_EVENT_STALE, BH_OK,
                        bh_str("the message was settled after its connection or consumer was gone: the broker delivers "
                               "it again"),
                        id_of(self, message), 0, 0, 1);
    } else if (message->outcome == BH_OUTCOME_OK || message->outcome == BH_OUTCOME_DROPPED) {
        bh__worker_acknowledge(self, message); /* as the plan says of these, whatever the headers hold */
    } else {
        bh_status status = decide(self, message);
        if (status != BH_OK)
            refuse(self, message, status);
    }
}

void bh__worker_settle_all(bh_worker *self)
{
    bh__queue settled = {.first = NULL};
    if (!self->consumer.is_doubtful)
        bh__shared_collect(&self->shared, &settled);
    self->has_settled = settled.first != NULL;
    for (bh_message *message; (message = bh__queue_pop(&settled));) {
        settle(self, message);
        bh_message_free(message);
    }
}

int bh__worker_guard(bh_worker *self, bh_message *message)
{
    bh_bytes random;
    bh_status status = bh__worker_read_in_hand(self, message, &random);
    if (status == BH_OK)
        status = bh_plan_guard(self->plan, self->delivery, self->history, self->policy, self->topology, bh__epoch_ms(),
                               random);
    if (status == BH_OK && bh_plan_action(self->plan) == BH_ACTION_NONE)
        return 0;
    if (status == BH_OK)
        status = carry_out(self, message);
    if (status != BH_OK) /* a handler may do better */
        return 0;
    atomic_store(&message->settling, BH__SETTLED);
    return 1;
}
