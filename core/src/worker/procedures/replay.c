#include "procedures/runner.h"

#include "engine/decision.h"

#include <stdio.h>

/* Of a queue that others share: each message of theirs is held until the end. */
enum { MOST_LOOKED = 10000 };

static bh_status open_get_channel(bh__runner *self)
{
    bh__context *context = &self->engine.context;
    bh__answer answer;
    bh_status status = bh__call_open_channel(self, &context->consume.link, BH__CHANNEL_GET, &answer);
    return status == BH_OK ? bh__getter_opened(&self->engine.getter, context) : status;
}

/* What was not acknowledged goes back to its queue. */
static void close_get_channel(bh__runner *self)
{
    bh__link *link = &self->engine.context.consume.link;
    bh__answer answer;
    if (!self->engine.getter.is_open)
        return;
    bh_ledger_flush(self->engine.context.ledger);
    bh__engine_advance(&self->engine);
    bh__getter_end(&self->engine.getter, &self->engine.context);
    if (!bh__link_is_broken(link))
        bh__call_close_channel(self, link, BH__CHANNEL_GET, &answer);
}

static int is_replay_over(const bh__runner *self, int64_t deadline_ms)
{
    const bh__context *context = &self->engine.context;
    return bh__engine_is_interrupted(&self->engine) || !self->engine.getter.is_open ||
           bh__link_is_broken(&context->consume.link) || bh__link_is_broken(&context->publish.link) ||
           bh__monotonic_ms() >= deadline_ms;
}

static bh_status report_interruption(bh__runner *self, bh_status status, const char *what)
{
    return bh__report_set(&self->problem, status, "%s was interrupted; replay again", what);
}

/* A queue whose messages are replayed. */
typedef struct source {
    bh_bytes queue;
    int is_shared; /* other work queues have messages in it too: they are left there */
} source;

/* Gets the next message, where there is one: the getter's entry. *left is how many come behind it. */
static bh_status get_next(bh__runner *self, const source *from, int64_t *left)
{
    bh__context *context = &self->engine.context;
    bh__getter *getter = &self->engine.getter;
    bh__answer answer = {.code = 0};
    amqp_basic_get_t get = {.queue = bh__to_amqp(from->queue)};
    int64_t deadline_ms = bh__monotonic_ms() + context->settings->confirm_timeout_ms;
    char what[300];
    snprintf(what, sizeof what, "reading \"%.*s\"", (int)from->queue.size, from->queue.data);
    getter->entry = 0;
    bh_status status = bh__call(self, &context->consume.link, BH__CHANNEL_GET, AMQP_BASIC_GET_METHOD, &get,
                                AMQP_BASIC_GET_OK_METHOD, AMQP_BASIC_GET_EMPTY_METHOD, what, &answer);
    if (answer.code)
        bh__getter_end(getter, context);
    if (status != BH_OK || answer.method.id != AMQP_BASIC_GET_OK_METHOD)
        return status;
    const amqp_basic_get_ok_t *got = context->consume.link.reply.decoded;
    *left = got->message_count;
    while (!getter->entry && !is_replay_over(self, deadline_ms))
        bh__runner_keep_going(self, deadline_ms);
    return getter->entry ? BH_OK : report_interruption(self, BH_ERR_CONNECTION, what);
}

/* Whether the getter's message is this work queue's. One that cannot be read is nobody's. */
static int is_own(const bh__runner *self)
{
    const bh__context *context = &self->engine.context;
    const bh_message *message = bh__held(context, self->engine.getter.entry);
    return message && bh__read(context->settings, message, context->delivery, NULL) == BH_OK &&
           bh_topology_owns(context->settings->topology, context->delivery);
}

/* Sends the getter's message back and waits until it is there. */
static bh_status replay_one(bh__runner *self)
{
    bh__context *context = &self->engine.context;
    bh__getter *getter = &self->engine.getter;
    int64_t deadline_ms = bh__monotonic_ms() + context->settings->confirm_timeout_ms;
    bh_message *message = bh__held(context, getter->entry);
    bh_status status = message ? bh__decide_replay(context, message) : BH_ERR_STATE;
    if (status != BH_OK) {
        bh__release(context, getter->entry);
        return bh__report_set(&self->problem, status, "%s", bh_status_text(status).data);
    }
    while (getter->result == BH__REPLAY_PENDING && !is_replay_over(self, deadline_ms))
        bh__runner_keep_going(self, deadline_ms);
    if (getter->result == BH__REPLAY_WENT)
        return BH_OK;
    if (getter->result == BH__REPLAY_PENDING)
        return report_interruption(self, BH_ERR_PUBLISH, "publishing a parked message");
    return bh__report_set(&self->problem, getter->problem.status, "%s", bh__report_text(&getter->problem).data);
}

/* A replay, and how far it is. */
typedef struct replay {
    int64_t most;
    int64_t count;      /* that went */
    bh__report refusal; /* of the first that did not for what it is */
} replay;

static int is_refusal(bh_status status)
{
    return status == BH_ERR_FRAME || status == BH_ERR_CONTENT || status == BH_ERR_CHANNEL;
}

/* Sends the getter's message back, or leaves it where it is. */
static bh_status go_on(bh__runner *self, const source *from, replay *done)
{
    if (from->is_shared && !is_own(self)) {
        bh__release(&self->engine.context, self->engine.getter.entry); /* unacknowledged until the channel closes */
        return BH_OK;
    }
    bh_status status = replay_one(self);
    done->count += status == BH_OK;
    if (!is_refusal(status))
        return status;
    if (done->refusal.status == BH_OK)
        bh__report_set(&done->refusal, status, "%s", bh__report_text(&self->problem).data);
    return BH_OK;
}

/* What comes into the queue meanwhile is not for this one: else a message that always fails would go round for ever. */
static bh_status replay_all(bh__runner *self, const source *from, replay *done)
{
    int64_t total = 1;
    for (int64_t seen = 0; done->count < done->most && seen < total; seen++) {
        int64_t left = 0;
        bh_status status = get_next(self, from, &left);
        if (status != BH_OK || !self->engine.getter.entry)
            return status;
        if (seen == 0)
            total = from->is_shared && left >= MOST_LOOKED ? MOST_LOOKED : left + 1;
        status = go_on(self, from, done);
        if (status != BH_OK)
            return status;
    }
    return BH_OK;
}

/* The unroutable queue is everybody's: who may not read it, or has not declared it, replays what is parked all the same. */
static bh_status replay_unroutable(bh__runner *self, replay *done)
{
    source from = {bh_topology_unroutable_queue(self->engine.context.settings->topology), 1};
    bh_status status = from.queue.size ? replay_all(self, &from, done) : BH_OK;
    return status == BH_ERR_MISSING || status == BH_ERR_ACCESS ? BH_OK : status;
}

void bh__replay(bh__runner *self, int64_t most)
{
    bh__context *context = &self->engine.context;
    replay done = {.most = most};
    source parked = {bh_topology_parked_queue(context->settings->topology), 0};
    bh_status status = open_get_channel(self);
    if (status == BH_OK)
        status = replay_all(self, &parked, &done);
    if (status == BH_OK)
        status = replay_unroutable(self, &done);
    if (status != BH_OK)
        bh__report_set(&done.refusal, status, "%s", bh__report_text(&self->problem).data);
    close_get_channel(self);
    bh__mailbox_end_replay(context->mailbox); /* so that who hears of it may ask for the next one */
    bh__tell(context, (bh__news){.kind = BH_EVENT_REPLAYED,
                                 .status = done.refusal.status,
                                 .text = bh__report_text(&done.refusal),
                                 .count = done.count});
    bh__report_free(&done.refusal);
}
