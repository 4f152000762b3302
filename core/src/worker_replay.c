#include "worker_internal.h"

static bh_status open_channel(bh_worker *self)
{
    bh__answer answer;
    bh_status status = bh__worker_open_channel(self, &self->consume.link, BH__CHANNEL_REPLAY, &answer);
    self->has_replay_channel = status == BH_OK;
    return status;
}

/* What was not acknowledged goes back to the parked queue. */
static void close_channel(bh_worker *self)
{
    bh__answer answer;
    if (self->has_replay_channel && !bh__link_is_broken(&self->consume.link))
        bh__worker_close_channel(self, &self->consume.link, BH__CHANNEL_REPLAY, &answer);
    self->has_replay_channel = 0;
}

void bh__worker_replay_frame(bh_worker *self, const bh__frame *frame, const amqp_method_t *method)
{
    bh__assembler *assembler = &self->replayed;
    bh_message *message = NULL;
    if (method && method->id == AMQP_BASIC_GET_OK_METHOD) {
        const amqp_basic_get_ok_t *got = method->decoded;
        bh__assembler_begin(assembler, got->delivery_tag, got->redelivered != 0, got->exchange, got->routing_key);
    } else if (method && method->id == AMQP_CHANNEL_CLOSE_METHOD && self->has_replay_channel) {
        bh__worker_channel_closed(&self->consume.link, BH__CHANNEL_REPLAY, method->decoded, "replaying",
                                  &self->problem);
        self->has_replay_channel = 0;
    } else if (!method) {
        bh_status status = bh__assembler_add(assembler, frame, &message);
        if (status != BH_OK)
            bh__link_fail(&self->consume.link, status, "a parked message could not be received");
    }
    if (!message)
        return;
    if (self->awaits_replay && !self->replay_message)
        self->replay_message = message;
    else
        bh_message_free(message);
}

static int is_over(bh_worker *self, int64_t deadline_ms)
{
    return bh__worker_is_interrupted(self) || !self->has_replay_channel || bh__link_is_broken(&self->consume.link) ||
           bh__link_is_broken(&self->publish.link) || bh__monotonic_ms() >= deadline_ms;
}

static bh_status interrupted(bh_worker *self, bh_status status, const char *what)
{
    return bh__report_set(&self->problem, status, "%s was interrupted; replay again", what);
}

/* The next parked message in self->replay_message, where there is one; *left is how many come behind it. */
static bh_status get(bh_worker *self, int64_t *left)
{
    bh__answer answer;
    amqp_basic_get_t get = {.queue = bh__to_amqp(bh_topology_parked_queue(self->topology))};
    int64_t deadline_ms = bh__monotonic_ms() + self->confirm_timeout_ms;
    self->replay_message = NULL;
    self->awaits_replay = 1;
    bh_status status =
        bh__worker_call(self, &self->consume.link, BH__CHANNEL_REPLAY, AMQP_BASIC_GET_METHOD, &get,
                        AMQP_BASIC_GET_OK_METHOD, AMQP_BASIC_GET_EMPTY_METHOD, "reading the parked queue", &answer);
    self->has_replay_channel = answer.code == 0;
    if (status != BH_OK || answer.method.id != AMQP_BASIC_GET_OK_METHOD)
        return status;
    const amqp_basic_get_ok_t *got = self->consume.link.reply.decoded;
    *left = got->message_count;
    while (!self->replay_message && !is_over(self, deadline_ms))
        bh__worker_keep_going(self, deadline_ms);
    self->awaits_replay = 0;
    return self->replay_message ? BH_OK : interrupted(self, BH_ERR_CONNECTION, "reading a parked message");
}

static void acknowledge(bh_worker *self, uint64_t delivery_tag)
{
    amqp_basic_ack_t ack = {.delivery_tag = delivery_tag};
    bh__link_send(&self->consume.link, BH__CHANNEL_REPLAY, AMQP_BASIC_ACK_METHOD, &ack);
}

static bh_status publish(bh_worker *self, bh_message *message)
{
    bh_bytes random;
    bh_status status = bh__worker_read_in_hand(self, message, &random);
    if (status == BH_OK)
        status = bh_plan_replay(self->plan, self->delivery, self->history, self->topology, random);
    if (status == BH_OK)
        status = bh__worker_queue_copy(self, message);
    return status == BH_OK ? BH_OK : bh__report_set(&self->problem, status, "%s", bh_status_text(status).data);
}

/* Sends the message back and waits until it is there. */
static bh_status replay_one(bh_worker *self, bh_message *message)
{
    bh__publisher *publisher = &self->publisher;
    int64_t deadline_ms = bh__monotonic_ms() + self->confirm_timeout_ms;
    publisher->replay = BH__REPLAY_PENDING;
    bh_status status = publish(self, message);
    if (status != BH_OK)
        return status;
    while (publisher->replay == BH__REPLAY_PENDING && !is_over(self, deadline_ms))
        bh__worker_keep_going(self, deadline_ms);
    if (publisher->replay == BH__REPLAY_PENDING)
        return interrupted(self, BH_ERR_PUBLISH, "publishing a parked message");
    if (publisher->replay == BH__REPLAY_REFUSED)
        return publisher->replay_status;
    acknowledge(self, message->delivery_tag);
    return BH_OK;
}

/* What is parked anew meanwhile is not for this one: else a message that always fails would go round for ever. */
static bh_status replay_all(bh_worker *self, int64_t most, int64_t *count, bh__report *refusal)
{
    int64_t total = 1;
    for (int64_t seen = 0; *count < most && seen < total; seen++) {
        int64_t left = 0;
        bh_status status = get(self, &left);
        bh_message *message = self->replay_message;
        if (status != BH_OK || !message)
            return status;
        if (seen == 0)
            total = left + 1;
        status = replay_one(self, message);
        self->replay_message = NULL;
        bh_message_free(message);
        int is_refusal = status == BH_ERR_FRAME || status == BH_ERR_CHANNEL;
        if (status != BH_OK && !is_refusal)
            return status;
        if (is_refusal && refusal->status == BH_OK)
            bh__report_set(refusal, status, "%s", bh__report_text(&self->problem).data);
        *count += status == BH_OK;
    }
    return BH_OK;
}

void bh__worker_replay(bh_worker *self, int64_t most)
{
    bh__report refusal = {.status = BH_OK};
    int64_t count = 0;
    bh_status status = open_channel(self);
    if (status == BH_OK)
        status = replay_all(self, most, &count, &refusal);
    if (status != BH_OK)
        bh__report_set(&refusal, status, "%s", bh__report_text(&self->problem).data);
    close_channel(self);
    bh_message_free(self->replay_message); /* one that came too late */
    self->replay_message = NULL;
    self->awaits_replay = 0;
    bh__shared_end_replay(&self->shared); /* so that who hears of it may ask for the next one */
    bh__worker_tell(self, BH_EVENT_REPLAYED, refusal.status, bh__report_text(&refusal), bh_str(""), 0, 0, count);
    bh__report_free(&refusal);
}
