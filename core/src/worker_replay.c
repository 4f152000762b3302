#include "worker_internal.h"

enum { CHANNEL = 1 };

static bh_status open_channel(bh_worker *self)
{
    amqp_connection_state_t state = self->replayer.state;
    amqp_channel_open(state, CHANNEL);
    return bh__connection_reply(&self->replayer, CHANNEL, amqp_get_rpc_reply(state), "opening a channel", NULL,
                                &self->report);
}

/* The next parked message, where there is one; *left is how many come behind it. */
static bh_status get(bh_worker *self, bh__message *message, int64_t *left)
{
    amqp_bytes_t queue = bh__to_amqp(bh_topology_parked_queue(self->topology));
    amqp_rpc_reply_t reply = amqp_basic_get(self->replayer.state, CHANNEL, queue, 0);
    bh_status status =
        bh__connection_reply(&self->replayer, CHANNEL, reply, "reading the parked queue", NULL, &self->report);
    if (status != BH_OK || reply.reply.id != AMQP_BASIC_GET_OK_METHOD)
        return status;
    const amqp_basic_get_ok_t *get_ok = reply.reply.decoded;
    *left = get_ok->message_count;
    bh__message_get_ok(message, CHANNEL, get_ok);
    while (status == BH_OK && !message->is_complete) {
        amqp_frame_t frame;
        status = bh__connection_frame(&self->replayer, self->confirm_timeout_ms, &frame, &self->report);
        if (status == BH_OK)
            status = bh__message_add(message, &frame);
        if (status != BH_OK)
            return bh__report_set(&self->report, status == BH_ERR_NO_MEMORY ? status : BH_ERR_CONNECTION,
                                  "reading a parked message failed; replay again");
    }
    return status;
}

static bh_status replay(bh_worker *self, const bh__message *message)
{
    bh_bytes random = {self->random, sizeof self->random};
    bh_status status = bh__worker_read(self, message);
    if (status == BH_OK)
        status = bh__worker_draw(self);
    if (status != BH_OK)
        return status;
    status = bh_plan_set_frame_max(self->plan, amqp_get_frame_max(self->consumer.state));
    if (status == BH_OK)
        status = bh_plan_replay(self->plan, self->delivery, self->history, self->topology, random);
    if (status != BH_OK)
        return bh__worker_no_plan(self, status);
    status = bh__worker_open_publisher(self);
    if (status == BH_OK)
        status = bh__worker_carry_out(self, &self->replayer, message);
    bh__publisher_forget(&self->publisher);
    return status;
}

/* Replays one, or leaves it unacked until the end so that it does not come again, and counts it. */
static bh_status replay_or_leave(bh_worker *self, const bh__message *message, int64_t *count)
{
    bh_status status = replay(self, message);
    if (bh__worker_is_refusal(status)) {
        bh__worker_keep_refusal(self);
        return BH_OK;
    }
    *count += status == BH_OK;
    return status;
}

/* What is parked anew meanwhile is not for this call: else a message that always fails would go round for ever. */
static bh_status replay_all(bh_worker *self, int64_t most, int64_t *count)
{
    bh__message message = {.is_begun = 0};
    bh_status status = open_channel(self);
    int64_t total = 1;
    for (int64_t seen = 0; status == BH_OK && *count < most && seen < total; seen++) {
        int64_t left = 0;
        bh__worker_service(self);
        status = get(self, &message, &left);
        if (status != BH_OK || !message.is_complete)
            break;
        if (seen == 0)
            total = left + 1;
        status = replay_or_leave(self, &message, count);
        bh__message_release(&message);
        amqp_maybe_release_buffers(self->replayer.state);
    }
    bh__message_free(&message);
    return status == BH_OK ? bh__worker_end_refusals(self) : status;
}

bh_status bh_worker_replay(bh_worker *self, int64_t most, int64_t *count)
{
    if (!self || !count || most < 0)
        return BH_ERR_ARGUMENT;
    *count = 0;
    if (self->is_current)
        return bh__report_set(&self->report, BH_ERR_STATE, "a message is taken and not settled; settle it first");
    if (!self->consumer.state)
        return bh__worker_not_connected(self);
    bh__report_clear(&self->refusal);
    bh_status status = bh__worker_open(self, &self->replayer, "replay");
    if (status == BH_OK)
        status = replay_all(self, most, count);
    bh__connection_close(&self->replayer); /* what was not settled goes back to the parked queue */
    return status;
}
