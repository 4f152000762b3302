#include "worker/procedures/runner.h"

#include "ledger/internal.h"

#include "relay/internal.h"
#include "worker/engine/decision.h"
#include "worker/engine/pacing.h"

#include <stdlib.h>

enum {
    FEWEST_HOPELESS = 3
}; /* failures in a row, and at least one per URI, after which a worker that was never ready stops */

bh_status bh__runner_init(bh__runner *self, const bh_worker *worker, const bh__settings *settings, bh__mailbox *mailbox)
{
    self->context = &self->engine.context;
    return bh__context_init(self->context, worker, settings, mailbox);
}

void bh__runner_free(bh__runner *self)
{
    bh__engine_free(&self->engine);
    bh_declaring_free(self->declaring);
    bh_declared_free(self->declared);
    bh__report_free(&self->problem);
}

/* Prepares a relay: the check of the work queues that its settings name is due. */
static bh_status begin_relay(bh__runner *self)
{
    bh__work_queues *work_queues = &self->context->work_queues;
    const bh__relay *relay = self->context->settings->relay;
    bh_status status = self->declared ? BH_OK : bh_declared_new(&self->declared);
    if (status == BH_OK)
        status = bh_declaring_set_declared(self->declaring, self->declared);
    if (status == BH_OK)
        status = bh_declaring_set_makes_rungs(self->declaring, 1);
    self->engine.waiting_count = 0;
    bh__work_queues_free(work_queues);
    *work_queues = (bh__work_queues){.count = 0};
    for (size_t i = 0; status == BH_OK && i < relay->served_count; i++)
        if (!relay->served[i].is_pattern &&
            !bh__work_queues_add(work_queues, bh__relay_name_of(relay, &relay->served[i]), 1))
            status = BH_ERR_NO_MEMORY;
    return status;
}

bh_status bh__runner_begin(bh__runner *self)
{
    bh__context *context = self->context;
    self->has_been_ready = self->has_given_up = 0;
    self->hopeless_count = 0;
    self->next_uri = 0;
    self->watched_ms = bh__monotonic_ms() - BH_LOOK_MS; /* the first time when it is ready */
    self->reread_ms = 0;
    self->engine.stage = BH__WORKING;
    self->engine.wanted_count = 0;
    self->engine.probe = (bh__probe){.is_open = 0};
    context->abandoned_count = context->guard.count = 0;
    context->setup.is_ready = context->setup.is_declared = 0;
    context->consume.back_off = context->publish.back_off = context->setup.back_off = (bh__back_off){.failures = 0};
    bh_declaring_free(self->declaring);
    bh_status status = bh_declaring_new(&self->declaring, context->settings->topology,
                                        context->settings->relay ? BH_DIALECT_RELAY : BH_DIALECT_C);
    if (status == BH_OK && context->settings->relay)
        status = begin_relay(self);
    if (status == BH_OK)
        status = bh__gate_begin(&self->engine.gate, context->settings);
    return status == BH_OK ? bh__context_begin(context) : status;
}

/* --------------------------------------------------------------------------------------- rounds */

static int is_stopping(const bh__runner *self)
{
    return atomic_load(&self->context->mailbox->stop_ms) != BH__NEVER;
}

/* Returns 1 if a worker that was never ready must stop: no retry can repair its errors, at all URIs
 * and more than once. */
static int is_to_give_up(const bh__runner *self)
{
    const bh__settings *settings = self->context->settings;
    return settings->fails_fast && !self->has_been_ready && self->hopeless_count >= FEWEST_HOPELESS &&
           self->hopeless_count >= settings->uri_count;
}

static void replay_if_asked(bh__runner *self)
{
    if (!self->context->setup.is_ready)
        return;
    int64_t most = bh__mailbox_begin_replay(self->context->mailbox);
    if (most >= 0)
        bh__replay(self, most);
}

static void work(bh__runner *self)
{
    while (!is_stopping(self) && !is_to_give_up(self)) {
        unsigned before = bh__engine_state(&self->engine);
        bh__reconnect_consumer(self);
        bh__runner_keep_up(self);
        replay_if_asked(self);
        bh__watch(self);
        bh__runner_pump(self, before, bh__watch_due_ms(self));
    }
}

/* -------------------------------------------------------------------------------------- the end */

/* Returns the number of messages that callers have, or whose copies are in flight, if settling
 * them can still have an effect. */
static int64_t count_unsettled(const bh__runner *self)
{
    const bh__engine *engine = &self->engine;
    return self->context->consume.link.is_open && engine->consumer.is_open ? bh__ledger_unsettled(self->context->ledger)
                                                                           : 0;
}

/* Returns the number of copies in flight. Copies that wait for a back-off do not count. */
static int64_t count_in_flight(const bh__runner *self)
{
    const bh_ledger *ledger = self->context->ledger;
    return count_unsettled(self) ? bh_ledger_count(ledger, BH_STATE_DUE) + bh_ledger_count(ledger, BH_STATE_SENT) : 0;
}

/* Drains: takes no more messages, and settles those in hand until the limit. */
static void drain(bh__runner *self)
{
    bh__engine *engine = &self->engine;
    engine->stage = BH__CLOSING; /* whatever the limit: an unseen delivery would count as a failed one */
    bh__mailbox_withdraw(
        self->context->mailbox,
        &engine->consumer
             .arrived); /* requeued after the cancel; otherwise the broker would deliver them again to this consumer */
    if (self->context->consume.link.is_open)
        bh__cancel(self);
    engine->stage = BH__DRAINING;
    bh__consumer_give_back_ready(&engine->consumer, self->context);
    bh__engine_collect(engine);
    while (count_unsettled(self) && !bh__engine_is_interrupted(engine)) {
        bh__consumer_give_back_ready(&engine->consumer, self->context); /* deliveries that were on their way */
        bh__runner_keep_going(self, INT64_MAX);
    }
}

/* Decides on the last settled messages and closes the mailbox: later settlements are refused. */
static void settle_last(bh__runner *self)
{
    bh__message_list settled = {.first = NULL};
    bh__mailbox_close(self->context->mailbox, &settled);
    for (bh_message *message; (message = bh__message_list_pop(&settled)); bh_message_free(message))
        bh__decide(self->context, message);
}

/* Waits a little for the confirms of settled messages, whatever the limit of the stop. Does not
 * reconnect. During an alarm the broker reads no copy, so that waiting is of no use. */
static void finish_copies(bh__runner *self)
{
    int64_t deadline_ms = bh__monotonic_ms() + BH__GOODBYE_MS;
    self->engine.stage = BH__CLOSING;
    bh__engine_advance(&self->engine);
    while (bh__are_open(self) && !self->context->publish.link.is_blocked && count_in_flight(self) &&
           bh__monotonic_ms() < deadline_ms) {
        bh__declare_wanted_rungs(self);
        bh__engine_pump(&self->engine, deadline_ms);
    }
    bh__ledger_flush(self->context->ledger);
    bh__engine_advance(&self->engine);
}

/* Waits until the broker has processed the last acknowledgements, before their channel is
 * closed. */
static void linger(bh__runner *self)
{
    int64_t deadline_ms = bh__monotonic_ms() + BH__LINGER_MS;
    while (self->engine.consumer.is_open && bh__are_open(self) && bh__monotonic_ms() < deadline_ms)
        bh__engine_pump(&self->engine, deadline_ms);
}

/* Requeues the remaining messages and closes the connections. Ignores confirms that arrive now,
 * because their originals are requeued. Returns the number of requeued messages. */
static int64_t close_all(bh__runner *self)
{
    bh__engine *engine = &self->engine;
    bh__context *context = self->context;
    int64_t count = count_unsettled(self);
    bh__consumer_give_back_all(&engine->consumer, context);
    bh__consumer_end(&engine->consumer, context);
    bh__parked_reader_end(&engine->parked_reader, context);
    bh__publisher_end(&engine->publisher, context, BH_ENDING_ORDERLY);
    bh__disconnect(self, &context->consume);
    bh__disconnect(self, &context->publish);
    if (bh__mailbox_begin_replay(context->mailbox) >= 0) {
        bh__mailbox_end_replay(context->mailbox);
        bh__emit(context, (bh__event_data){.kind = BH_EVENT_REPLAYED,
                                           .status = BH_ERR_STATE,
                                           .text = bh_str("the worker stopped before the replay began")});
    }
    return count;
}

static void emit_drained(bh__runner *self, int64_t count)
{
    bh__event_data data = {.kind = BH_EVENT_DRAINED, .count = count};
    if (self->has_given_up) {
        data.status = self->problem.status;
        data.text = bh__report_text(&self->problem);
    } else if (count) {
        data.status = BH_ERR_TIMEOUT; /* its text says everything */
    } else {
        data.text = bh_str("all messages in hand are settled, or the broker has them again");
    }
    bh__emit_last(self->context, data);
}

void *bh__runner_thread(void *runner)
{
    bh__runner *self = runner;
    work(self);
    self->has_given_up = !is_stopping(self);
    if (!self->has_given_up)
        drain(self);
    settle_last(self);
    finish_copies(self);
    linger(self);
    emit_drained(self, close_all(self));
    bh__mailbox_end(self->context->mailbox);
    return NULL;
}
