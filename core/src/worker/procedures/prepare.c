#include "worker/procedures/runner.h"

#include "ledger/internal.h"
#include "worker/wire/login.h"

/* Returns 1 if there is a connection to set up. To resolve a cancel, the consume connection is
 * enough. */
static int can_prepare(const bh__runner *self)
{
    const bh__context *context = self->context;
    return context->consume.link.is_open && (context->publish.link.is_open || self->engine.consumer.is_doubtful);
}

static bh_status declare_topology(bh__runner *self)
{
    bh_ledger_forget_rungs(self->context->ledger);
    self->engine.wanted_count = 0;
    if (self->declared)
        bh_declared_clear(self->declared);
    bh_status status = bh__declare(self);
    if (status == BH_OK && self->declared) {
        bh__work_queues_check_all(&self->context->work_queues, bh__monotonic_ms());
        status = bh__check_work_queues(self);
    }
    self->context->setup.is_declared = status == BH_OK;
    return status;
}

/* Takes the next step. */
static bh_status prepare_next(bh__runner *self)
{
    if (self->engine.consumer.is_doubtful)
        return bh__resolve_cancel(self);
    if (!bh__publisher_is_open(&self->engine.publisher))
        return bh__open_publisher(self);
    if (!self->context->setup.is_declared)
        return declare_topology(self);
    return bh__consume(self);
}

static int is_to_consume(const bh__runner *self)
{
    const bh__context *context = self->context;
    return self->engine.stage == BH__WORKING && context->settings->prefetch > 0 &&
           !bh__ledger_is_full(context->ledger) && !bh_flow_is_cancelled(self->engine.gate.flow);
}

static int is_prepared(const bh__runner *self)
{
    const bh__consumer *consumer = &self->engine.consumer;
    return bh__publisher_is_open(&self->engine.publisher) && self->context->setup.is_declared &&
           !consumer->is_doubtful && (consumer->is_consuming || !is_to_consume(self));
}

static void emit_connected(bh__runner *self)
{
    bh__context *context = self->context;
    const bh__uri *uri = context->consume.uri;
    const bh__link *link = &context->consume.link;
    bh__report text = {.size = 0};
    bh__report_set(&text, BH_OK, "%s %s at %s:%d, vhost %s, as %s%s%s", link->product, link->version, uri->host,
                   uri->port, uri->vhost, link->user, link->cluster[0] ? ", cluster " : "", link->cluster);
    context->setup.is_ready = self->has_been_ready = 1;
    context->alive_ms = bh__monotonic_ms();
    bh__emit(context, (bh__event_data){
                          .kind = BH_EVENT_CONNECTED, .text = bh__report_text(&text), .connection = &context->consume});
    bh__report_free(&text);
}

static void prepare_if_due(bh__runner *self)
{
    bh__context *context = self->context;
    while (can_prepare(self) && !is_prepared(self) && bh__monotonic_ms() >= context->setup.back_off.due_ms &&
           !bh__engine_is_interrupted(&self->engine)) {
        bh_status status = prepare_next(self);
        if (status == BH_OK ||
            (status == BH_ERR_CONNECTION && !can_prepare(self))) /* BH_EVENT_DISCONNECTED reports a lost connection */
            continue;
        bh__emit_failure(self, &context->consume, status, bh__note_failure(context, &context->setup.back_off));
    }
    if (bh__are_open(self) && is_prepared(self) && !context->setup.is_ready && self->engine.stage == BH__WORKING)
        emit_connected(self);
}

void bh__declare_wanted_rungs(bh__runner *self)
{
    bh__engine *engine = &self->engine;
    while (engine->wanted_count && bh__are_open(self) && self->context->setup.is_declared) {
        int64_t rung_ms = engine->wanted_rungs[--engine->wanted_count];
        bh_status status = bh__declare_rung(self, rung_ms);
        if (status != BH_OK)
            bh__report_set(&engine->publisher.problem, status, "%s", bh__report_text(&self->problem).data);
        bh_ledger_rung(self->context->ledger, rung_ms, status, bh__monotonic_ms());
    }
}

/* Checks the work queues of a relay. A failure is a lost connection, which is reported, or no
 * memory; the check is repeated. */
static void check_wanted_queues(bh__runner *self)
{
    bh__context *context = self->context;
    if (!self->declared || !context->setup.is_ready || self->engine.stage != BH__WORKING)
        return;
    if (bh__monotonic_ms() >= context->work_queues.recheck_ms)
        bh__work_queues_check_all(&context->work_queues, bh__monotonic_ms());
    if (context->work_queues.due_count)
        bh__check_work_queues(self);
}

void bh__prepare(bh__runner *self)
{
    prepare_if_due(self);
    bh__declare_wanted_rungs(self);
    check_wanted_queues(self);
}

int64_t bh__prepare_due_ms(const bh__runner *self)
{
    const bh__context *context = self->context;
    int64_t due_ms = can_prepare(self) && !is_prepared(self) ? context->setup.back_off.due_ms : INT64_MAX;
    if (self->declared && context->setup.is_ready && self->engine.stage == BH__WORKING)
        due_ms = bh__earlier(due_ms, context->work_queues.recheck_ms);
    return due_ms;
}
