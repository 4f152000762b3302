#include "worker/procedures/runner.h"

#include "ledger/internal.h"
#include "worker/engine/decision.h"
#include "topology/internal.h"

#include <backhop/adapter/replay.h>

#include <stdio.h>

static bh_status open_get_channel(bh__runner *self)
{
    bh__context *context = self->context;
    bh__answer answer;
    bh_status status = bh__call_open_channel(self, &context->consume.link, BH__CHANNEL_GET, &answer);
    return status == BH_OK ? bh__parked_reader_opened(&self->engine.parked_reader, context) : status;
}

/* Closes the channel: the broker requeues its unacknowledged messages. */
static void close_get_channel(bh__runner *self)
{
    bh__link *link = &self->context->consume.link;
    bh__answer answer;
    if (!self->engine.parked_reader.is_open)
        return;
    bh__ledger_flush(self->context->ledger);
    bh__engine_advance(&self->engine);
    bh__parked_reader_end(&self->engine.parked_reader, self->context);
    if (!bh__link_is_broken(link))
        bh__call_close_channel(self, link, BH__CHANNEL_GET, &answer);
}

static int is_replay_over(const bh__runner *self, int64_t deadline_ms)
{
    const bh__context *context = self->context;
    return bh__engine_is_interrupted(&self->engine) || !self->engine.parked_reader.is_open ||
           bh__link_is_broken(&context->consume.link) || bh__link_is_broken(&context->publish.link) ||
           bh__monotonic_ms() >= deadline_ms;
}

static bh_status report_interruption(bh__runner *self, bh_status status, const char *what)
{
    return bh__report_set(&self->problem, status, "%s was interrupted; replay again", what);
}

/* A queue to replay from. */
typedef struct source {
    bh_bytes queue;
    int is_shared; /* it also has messages of other work queues, which stay */
} source;

/* Gets the next message, if there is one, into parked_reader.entry. *remaining: how many
 * messages follow it. */
static bh_status get_next(bh__runner *self, const source *from, int64_t *remaining)
{
    bh__context *context = self->context;
    bh__parked_reader *parked_reader = &self->engine.parked_reader;
    bh__answer answer = {.code = 0};
    amqp_basic_get_t get = {.queue = bh__to_amqp(from->queue)};
    int64_t deadline_ms = bh__monotonic_ms() + context->settings->confirm_timeout_ms;
    char what[300];
    snprintf(what, sizeof what, "reading \"%.*s\"", (int)from->queue.size, from->queue.data);
    parked_reader->entry = 0;
    bh_status status = bh__call(self, &context->consume.link, BH__CHANNEL_GET, AMQP_BASIC_GET_METHOD, &get,
                                AMQP_BASIC_GET_OK_METHOD, AMQP_BASIC_GET_EMPTY_METHOD, what, &answer);
    if (answer.code)
        bh__parked_reader_end(parked_reader, context);
    if (status != BH_OK || answer.method.id != AMQP_BASIC_GET_OK_METHOD)
        return status;
    const amqp_basic_get_ok_t *got = context->consume.link.reply.decoded;
    *remaining = got->message_count;
    while (!parked_reader->entry && !is_replay_over(self, deadline_ms))
        bh__runner_keep_going(self, deadline_ms);
    return parked_reader->entry ? BH_OK : report_interruption(self, BH_ERR_CONNECTION, what);
}

/* Returns 1 if the message is of this work queue. A malformed message is of none. */
static int is_own(const bh__runner *self)
{
    const bh__context *context = self->context;
    const bh_message *message = bh__find_in_hand(context, self->engine.parked_reader.entry);
    return message && bh__read_message(context->settings, message, context->work.delivery, NULL) == BH_OK &&
           bh_topology_owns(context->settings->topology, context->work.delivery);
}

/* Replays the message and waits for its confirm. */
static bh_status replay_one(bh__runner *self)
{
    bh__context *context = self->context;
    bh__parked_reader *parked_reader = &self->engine.parked_reader;
    int64_t deadline_ms = bh__monotonic_ms() + context->settings->confirm_timeout_ms;
    bh_message *message = bh__find_in_hand(context, parked_reader->entry);
    bh_status status = message ? bh__decide_replay(context, message) : BH_ERR_STATE;
    if (status != BH_OK) {
        bh__release(context, parked_reader->entry);
        return bh__report_set(&self->problem, status, "%s", bh_status_text(status).data);
    }
    while (parked_reader->result == BH__REPLAY_PENDING && !is_replay_over(self, deadline_ms))
        bh__runner_keep_going(self, deadline_ms);
    if (parked_reader->result == BH__REPLAY_DONE)
        return BH_OK;
    if (parked_reader->result == BH__REPLAY_PENDING)
        return report_interruption(self, BH_ERR_PUBLISH, "publishing a parked message");
    return bh__report_set(&self->problem, parked_reader->problem.status, "%s",
                          bh__report_text(&parked_reader->problem).data);
}

/* A replay and its progress. */
typedef struct replay {
    int64_t most;
    int64_t count;      /* replayed */
    int64_t foreign;    /* read, and left in the queue, because they are of other work queues */
    bh__report refusal; /* why the first message was refused for its content */
} replay;

/* Replays the message, or leaves it in its queue. */
static bh_status go_on(bh__runner *self, const source *from, replay *done)
{
    if (from->is_shared && !is_own(self)) {
        done->foreign++;
        self->context->skipped_count++;
        bh__release(self->context,
                    self->engine.parked_reader.entry); /* it stays unacknowledged until the channel is closed */
        return BH_OK;
    }
    bh_status status = replay_one(self);
    done->count += status == BH_OK;
    if (!bh_replay_goes_on(status, 0))
        return status;
    if (done->refusal.status == BH_OK)
        bh__report_set(&done->refusal, status, "%s", bh__report_text(&self->problem).data);
    return BH_OK;
}

/* Replays the messages that are in the queue now. It leaves messages that are parked meanwhile;
 * otherwise a message that always fails would be replayed forever. */
static bh_status replay_all(bh__runner *self, const source *from, replay *done)
{
    int64_t total = 1;
    for (int64_t seen = 0; done->count < done->most && seen < total; seen++) {
        int64_t remaining = 0;
        bh_status status = get_next(self, from, &remaining);
        if (status != BH_OK || !self->engine.parked_reader.entry)
            return status;
        if (seen == 0)
            total = bh_replay_limit(remaining, from->is_shared);
        status = go_on(self, from, done);
        if (status != BH_OK)
            return status;
    }
    return BH_OK;
}

/* Replays from the unroutable queue, which all work queues share. If it does not exist or the
 * user may not read it, only parked messages are replayed. */
static bh_status replay_unroutable(bh__runner *self, replay *done)
{
    source from = {bh__topology_unroutable_queue(self->context->settings->topology), 1};
    bh_status status = from.queue.size ? replay_all(self, &from, done) : BH_OK;
    return bh_replay_goes_on(status, 1) ? BH_OK : status;
}

int64_t bh__replay_own_unroutable(bh__runner *self)
{
    bh__context *context = self->context;
    replay done = {.most = BH_REPLAY_MOST_SHARED};
    if (bh__topology_unroutable_queue(context->settings->topology).size == 0)
        return 0;
    bh_status status = open_get_channel(self);
    if (status == BH_OK)
        status = replay_unroutable(self, &done);
    close_get_channel(self);
    if (done.count)
        bh__emit(context, (bh__event_data){.kind = BH_EVENT_REPLAYED,
                                           .status = status,
                                           .text = bh_replay_unroutable_text((bh_mode)context->settings->mode),
                                           .count = done.count});
    bh__report_free(&done.refusal);
    return done.foreign;
}

void bh__replay(bh__runner *self, int64_t most)
{
    bh__context *context = self->context;
    replay done = {.most = most};
    source parked = {bh__topology_parked_queue(context->settings->topology), 0};
    bh_status status = open_get_channel(self);
    if (status == BH_OK)
        status = replay_all(self, &parked, &done);
    if (status == BH_OK)
        status = replay_unroutable(self, &done);
    if (status != BH_OK)
        bh__report_set(&done.refusal, status, "%s", bh__report_text(&self->problem).data);
    close_get_channel(self);
    bh__mailbox_end_replay(context->mailbox); /* before the event, so that its listener can request the next replay */
    bh__emit(context, (bh__event_data){.kind = BH_EVENT_REPLAYED,
                                       .status = done.refusal.status,
                                       .text = bh__report_text(&done.refusal),
                                       .count = done.count});
    bh__report_free(&done.refusal);
}
