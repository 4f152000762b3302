#include "worker/engine/engine.h"

#include "worker/engine/decision.h"
#include "worker/engine/pacing.h"
#include "worker/wire/schedule.h"
#include "ledger/internal.h"
#include "base/memory.h"

#include <backhop/adapter/event.h>
#include <stdio.h>
#include <stdlib.h>

void bh__engine_free(bh__engine *self)
{
    bh__publisher_free(&self->publisher);
    bh__parked_reader_free(&self->parked_reader);
    bh__context_free(&self->context);
    bh__gate_free(&self->gate);
    free(self->wanted_rungs);
}

int bh__engine_is_interrupted(const bh__engine *self)
{
    int64_t stop_ms = atomic_load(&self->context.mailbox->stop_ms);
    switch (self->stage) {
    case BH__WORKING:
        return stop_ms != BH__NEVER;
    case BH__DRAINING:
        return bh__monotonic_ms() >= stop_ms;
    case BH__CLOSING:
        break;
    }
    return 0;
}

/* --------------------------------------------------------------------------- the ledger's steps */

/* Returns the channel of the consume link that has this number in the ledger; 0: none. */
static amqp_channel_t amqp_channel_of(const bh__engine *self, int64_t ledger_channel)
{
    if (self->consumer.is_open && self->consumer.ledger_channel == ledger_channel)
        return self->consumer.channel;
    return self->parked_reader.is_open && self->parked_reader.ledger_channel == ledger_channel ? BH__CHANNEL_GET : 0;
}

/* Starts the back-off again (flow/back_off.h). A delivery is not enough: the connection can end
 * after each delivery, and each end can count as a failed delivery. */
static void note_settled(bh__context *context)
{
    context->consume.has_worked = 1;
    bh__back_off_forget(&context->setup.back_off);
}

static void on_ack_step(bh__engine *self, const bh_step *step)
{
    amqp_channel_t channel = amqp_channel_of(self, step->channel);
    amqp_basic_ack_t ack = {.delivery_tag = (uint64_t)step->tag, .multiple = step->multiple};
    if (!channel)
        return;
    note_settled(&self->context);
    bh__link_send(&self->context.consume.link, channel, AMQP_BASIC_ACK_METHOD, &ack);
}

static void on_dismiss_step(bh__engine *self, const bh_step *step)
{
    amqp_channel_t channel = amqp_channel_of(self, step->channel);
    uint64_t tag = (uint64_t)step->tag;
    amqp_basic_nack_t nack = {.delivery_tag = tag, .requeue = step->kind == BH_STEP_GIVE_BACK};
    amqp_basic_reject_t reject = {.delivery_tag = tag, .requeue = 1};
    bh__release(&self->context, step->entry);
    if (!channel)
        return;
    if (step->kind != BH_STEP_GIVE_BACK)
        note_settled(&self->context);
    if (step->kind == BH_STEP_REJECT)
        bh__link_send(&self->context.consume.link, channel, AMQP_BASIC_REJECT_METHOD, &reject);
    else
        bh__link_send(&self->context.consume.link, channel, AMQP_BASIC_NACK_METHOD, &nack);
}

static void on_declare_step(bh__engine *self, const bh_step *step)
{
    int64_t rung_ms = step->delay_ms;
    void *rungs = self->wanted_rungs;
    if (bh__reserve(&rungs, &self->wanted_capacity, sizeof *self->wanted_rungs, self->wanted_count + 1)) {
        self->wanted_rungs = rungs;
        self->wanted_rungs[self->wanted_count++] = rung_ms;
    } else {
        bh__report_set(&self->publisher.problem, BH_ERR_NO_MEMORY, "no memory to declare a wait queue");
        bh_ledger_rung(self->context.ledger, rung_ms, BH_ERR_NO_MEMORY, bh__monotonic_ms());
    }
}

static void send_copy(bh__engine *self, int64_t publisher, bh_message *message)
{
    if (bh__is_observed(&self->context, bh_event_of_copy(message->copy->action)))
        message->copy->sent_us = bh__monotonic_us();
    bh__publisher_send(&self->publisher, &self->context, publisher, message);
}

static void on_publish_step(bh__engine *self, const bh_step *step)
{
    bh__context *context = &self->context;
    bh_message *message = bh__find_in_hand(context, step->entry);
    if (!message)
        return;
    if (!message->copy) /* an earlier decision failed */
        bh__decide(context, message);
    else if (message->copy->properties.size >
             bh__link_header_room(&context->publish.link)) /* another broker negotiated a smaller frame_max */
        bh__abandon(context, message, BH_ERR_FRAME, bh_status_text(BH_ERR_FRAME));
    else
        send_copy(self, step->publisher, message);
}

/* Records the result of a replay. BH_EVENT_REPLAYED reports the replay as a whole. */
static void on_replay_event(bh__engine *self, const bh_step *step, const bh_message *message)
{
    bh_status status;
    self->parked_reader.result = step->event == BH_EVENT_REPLAYED ? BH__REPLAY_DONE : BH__REPLAY_FAILED;
    if (step->event == BH_EVENT_REPLAYED)
        return;
    bh_bytes text = bh__publisher_explain(&self->publisher, &self->context, step, message->copy, &status);
    bh__report_set(&self->parked_reader.problem, status, "%.*s", (int)text.size, text.data);
}

static void emit_of_message(bh__engine *self, const bh_step *step, const bh_message *message)
{
    bh__context *context = &self->context;
    const bh__copy *copy = message->copy;
    bh__event_data data = {.kind = step->event,
                           .queue = copy->queue,
                           .id = copy->id,
                           .message = message,
                           .attempts = copy->attempts,
                           .delay_ms = step->delay_ms,
                           .count = 1};
    if (step->event == BH_EVENT_RETRIED || step->event == BH_EVENT_DEFERRED || step->event == BH_EVENT_PARKED) {
        data.deferrals = copy->deferrals;
        data.delay_ms = copy->delay_ms;
        data.reason = copy->reason;
        data.error = copy->error;
        data.duration_us = copy->sent_us ? bh__monotonic_us() - copy->sent_us : 0;
    } else {
        data.text = bh__publisher_explain(&self->publisher, context, step, copy, &data.status);
    }
    bh__emit(context, data);
}

/* Gives up a broker that does not confirm: it may have lost its cluster. */
static void on_unconfirmed(bh__engine *self, const bh_step *step)
{
    bh__context *context = &self->context;
    bh__emit(context,
             (bh__event_data){.kind = BH_EVENT_UNCONFIRMED,
                              .status = BH_ERR_PUBLISH,
                              .text = bh_ledger_text(context->ledger, bh_str(""), bh_str(""), bh_str(""), bh_str("")),
                              .count = step->count,
                              .connection = &context->publish});
    bh__link_fail(&context->publish.link, BH_ERR_CONNECTION,
                  "the broker did not confirm within %lld ms; this node may have lost its cluster",
                  (long long)context->settings->confirm_timeout_ms);
}

static void on_emit_step(bh__engine *self, const bh_step *step)
{
    bh__context *context = &self->context;
    int64_t entry = step->entry;
    const bh_message *message = bh__find_in_hand(context, entry);
    if (step->event == BH_EVENT_UNCONFIRMED)
        on_unconfirmed(self, step);
    if (!message || !message->copy)
        return;
    if (entry == self->parked_reader.entry)
        on_replay_event(self, step, message);
    else
        emit_of_message(self, step, message);
    context->abandoned_count += step->event == BH_EVENT_REFUSED && entry != self->parked_reader.entry;
    if (step->event != BH_EVENT_NACKED && step->event != BH_EVENT_RETURNED) /* those are published again */
        bh__release(context, entry);
}

static int may_publish(const bh__engine *self)
{
    const bh__link *link = &self->context.publish.link;
    return self->context.setup.is_declared && bh__publisher_is_open(&self->publisher) && !bh__link_is_broken(link) &&
           bh__buffer_size(&link->out) < BH__MOST_UNSENT_BYTES;
}

void bh__engine_advance(bh__engine *self)
{
    int64_t now_ms = bh__monotonic_ms();
    for (bh_step step; bh_ledger_next(self->context.ledger, now_ms, may_publish(self), &step);) {
        switch (step.kind) {
        case BH_STEP_EMIT:
            on_emit_step(self, &step);
            break;
        case BH_STEP_ACK:
            on_ack_step(self, &step);
            break;
        case BH_STEP_NACK:
        case BH_STEP_REJECT:
        case BH_STEP_GIVE_BACK:
            on_dismiss_step(self, &step);
            break;
        case BH_STEP_DECLARE:
            on_declare_step(self, &step);
            break;
        case BH_STEP_PUBLISH:
            on_publish_step(self, &step);
            break;
        case BH_STEP_OPEN: /* not without a publisher: may_publish */
        case BH_STEP_REST:
            break;
        }
    }
    bh__consumer_check_abandoned(&self->consumer, &self->context);
    atomic_store(&self->context.mailbox->unconfirmed_count, bh_ledger_copies(self->context.ledger));
}

void bh__engine_collect(bh__engine *self)
{
    bh__message_list settled = {.first = NULL};
    if (!self->consumer.is_doubtful)
        bh__mailbox_collect(self->context.mailbox, &settled);
    self->has_settled = settled.first != NULL;
    for (bh_message *message; (message = bh__message_list_pop(&settled));) {
        bh__decide(&self->context, message);
        bh_message_free(message);
    }
}

/* ------------------------------------------------------------------------------------ frames in */

/* Handles connection.blocked and .unblocked. The broker only blocks connections that publish. */
static void on_blocked(bh__engine *self, const bh__link *link, int is_blocked, bh_bytes reason)
{
    bh__context *context = &self->context;
    if (link != &context->publish.link || context->publish.link.is_blocked == is_blocked)
        return;
    context->publish.link.is_blocked = is_blocked;
    bh_ledger_block(context->ledger, is_blocked, bh__monotonic_ms());
    bh__emit(context, (bh__event_data){.kind = is_blocked ? BH_EVENT_BLOCKED : BH_EVENT_UNBLOCKED,
                                       .text = reason,
                                       .count = bh_ledger_copies(context->ledger),
                                       .connection = &context->publish});
}

static void on_connection_method(bh__engine *self, bh__link *link, const amqp_method_t *method)
{
    switch (method->id) {
    case AMQP_CONNECTION_CLOSE_METHOD:
        bh__link_answer_close(link, method->decoded);
        break;
    case AMQP_CONNECTION_BLOCKED_METHOD: {
        const amqp_connection_blocked_t *blocked = method->decoded;
        on_blocked(self, link, 1, bh__from_amqp(blocked->reason));
        break;
    }
    case AMQP_CONNECTION_UNBLOCKED_METHOD:
        on_blocked(self, link, 0, bh_str(""));
        break;
    default:
        break;
    }
}

static void dispatch_frame(bh__engine *self, bh__link *link, const bh__frame *frame)
{
    bh__context *context = &self->context;
    amqp_method_t method = {0, NULL};
    int is_method = frame->type == AMQP_FRAME_METHOD;
    if (frame->type == AMQP_FRAME_HEARTBEAT || (is_method && !bh__link_decode(link, frame, &method)))
        return;
    int is_reply = is_method && link->reply.decoded == method.decoded && link->reply.id == method.id;
    if (is_reply && method.id != AMQP_BASIC_GET_OK_METHOD)
        return; /* a procedure waits for it; the content of basic.get-ok follows */
    const amqp_method_t *its_method = is_method ? &method : NULL;
    if (frame->channel == 0)
        on_connection_method(self, link, &method);
    else if (link == &context->publish.link)
        bh__publisher_on_frame(&self->publisher, context, frame, its_method);
    else if (frame->channel == BH__CHANNEL_GET)
        bh__parked_reader_on_frame(&self->parked_reader, context, frame, its_method);
    else if (frame->channel == BH__CHANNEL_PROBE)
        bh__probe_on_frame(&self->probe, context, its_method);
    else
        bh__consumer_on_frame(&self->consumer, context, frame, its_method);
}

static void dispatch_frames(bh__engine *self, bh__link *link)
{
    bh__frame frame;
    while (bh__link_next(link, &frame))
        dispatch_frame(self, link, &frame);
}

/* -------------------------------------------------------------------------------------- waiting */

static int is_alive(const bh__link *link)
{
    return link->phase != BH__CLOSED && !bh__link_is_broken(link);
}

/* Returns until when no message is offered (BH__GUARD_MS); 0: the guard has no copies in flight. */
static int64_t guarding_until_ms(const bh__engine *self)
{
    const bh__context *context = &self->context;
    return context->guard.count > 0 ? context->guard.since_ms + BH__GUARD_MS : 0;
}

/* Returns how many handlers have a message, if none of them is free for a message that waits; else
 * 0. */
static int64_t count_busy(const bh__engine *self)
{
    if (self->gate.is_limiting)
        return 0;
    const bh_ledger *ledger = self->context.ledger;
    int64_t waiting = bh__consumer_count_untaken(&self->consumer, &self->context);
    int64_t handled = bh__ledger_unsettled(ledger) - bh_ledger_copies(ledger) - waiting;
    return waiting > 0 || handled >= self->context.settings->prefetch ? handled : 0;
}

/* Returns when BH_EVENT_BUSY is due if no message is taken before, monotonic; INT64_MAX: never. */
static int64_t busy_due_ms(const bh__engine *self)
{
    const bh__mailbox *mailbox = self->context.mailbox;
    int64_t since_ms = atomic_load(&mailbox->progress_ms);
    int is_watched = mailbox->handler_timeout_ms && self->stage == BH__WORKING && since_ms != self->busy_ms;
    return is_watched && count_busy(self) > 0 ? since_ms + mailbox->handler_timeout_ms : INT64_MAX;
}

static void check_busy(bh__engine *self)
{
    int64_t now_ms = bh__monotonic_ms(), since_ms = atomic_load(&self->context.mailbox->progress_ms);
    if (now_ms < busy_due_ms(self))
        return;
    self->busy_ms = since_ms;
    bh__emit(
        &self->context,
        (bh__event_data){.kind = BH_EVENT_BUSY, .count = count_busy(self), .duration_us = (now_ms - since_ms) * 1000});
}

/* Returns when the thread looks for BH_EVENT_BUSY, monotonic; INT64_MAX: never. A take does not
 * wake the thread. */
static int64_t busy_check_ms(const bh__engine *self, int64_t now_ms)
{
    int64_t limit_ms = self->context.mailbox->handler_timeout_ms;
    if (!limit_ms || bh__ledger_unsettled(self->context.ledger) == 0)
        return INT64_MAX;
    return bh__earlier(busy_due_ms(self), now_ms + limit_ms);
}

static int64_t next_ms(const bh__engine *self, int64_t until_ms, int64_t now_ms)
{
    const bh__context *context = &self->context;
    int64_t due_ms = bh_ledger_due_ms(context->ledger);
    int64_t next =
        self->stage == BH__CLOSING ? until_ms : bh__earlier(until_ms, atomic_load(&context->mailbox->stop_ms));
    if (due_ms != BH_LEDGER_NEVER)
        next = bh__earlier(next, due_ms);
    if (self->stage == BH__WORKING) {
        if (self->consumer.arrived.first && guarding_until_ms(self))
            next = bh__earlier(next, guarding_until_ms(self));
        next = bh__earlier(next, bh__probe_due_ms(&self->probe, context));
        next = bh__earlier(next, busy_check_ms(self, now_ms));
        next = bh__earlier(next, bh__gate_due_ms(&self->gate));
    }
    next = bh__earlier(next, bh__link_next_beat_ms(&context->consume.link));
    next = bh__earlier(next, bh__link_next_beat_ms(&context->publish.link));
    return context->consume.link.has_more || context->publish.link.has_more ? now_ms : next;
}

/* Polls until `until_ms` at most. Sets ready[i] if link i has a socket event. */
static void wait_for_io(bh__engine *self, int64_t until_ms, int ready[2])
{
    bh__mailbox *mailbox = self->context.mailbox;
    const bh__link *const links[] = {&self->context.consume.link, &self->context.publish.link};
    struct pollfd polled[3] = {{.fd = mailbox->wake[0], .events = POLLIN}};
    for (int i = 0; i < 2; i++)
        polled[i + 1] =
            (struct pollfd){.fd = is_alive(links[i]) ? links[i]->socket.fd : -1, .events = bh__link_events(links[i])};
    int64_t remaining_ms = next_ms(self, until_ms, bh__monotonic_ms()) - bh__monotonic_ms();
    int timeout_ms = remaining_ms < 0                     ? 0
                     : remaining_ms > BH__LONGEST_POLL_MS ? BH__LONGEST_POLL_MS
                                                          : (int)remaining_ms;
    int naps = self->has_settled || atomic_load(&mailbox->settled_count) > 0;
    bh__sleep sleep = naps ? BH__NAPPING : BH__ASLEEP;
    if (naps && timeout_ms > BH__NAP_MS)
        timeout_ms = BH__NAP_MS;
    if (!bh__mailbox_begin_wait(mailbox, sleep) && !self->consumer.is_doubtful)
        timeout_ms = 0;
    int count = bh__schedule_poll(polled, 3, timeout_ms);
    self->is_woken = count == 0 || polled[0].revents;
    bh__mailbox_end_wait(mailbox, count > 0 && polled[0].revents);
    for (int i = 0; i < 2; i++)
        ready[i] = count > 0 && polled[i + 1].fd >= 0 && polled[i + 1].revents;
}

/* Decides on settled messages once per millisecond while sockets are busy, or when many are
 * settled. */
static void settle_in_time(bh__engine *self, int64_t now_ms)
{
    const bh__mailbox *mailbox = self->context.mailbox;
    if (!self->is_woken && now_ms == self->settled_ms && atomic_load(&mailbox->settled_count) < mailbox->wake_count)
        return;
    self->settled_ms = now_ms;
    bh__engine_collect(self);
}

/* Offers deliveries to callers. Rests a little if the broker may send as many again
 * (BH__REST_NS). */
static void offer_arrived(bh__engine *self)
{
    if (!self->consumer.arrived.first || self->stage != BH__WORKING || bh__monotonic_ms() < guarding_until_ms(self))
        return;
    bh__mailbox_offer(self->context.mailbox, &self->consumer.arrived);
    if (bh__ledger_unsettled(self->context.ledger) < self->context.settings->prefetch / 2)
        bh__schedule_rest(BH__REST_NS);
}

/* Decides on dead letters. Those whose work queue is checked wait. */
static void settle_arrived_dead_letters(bh__engine *self)
{
    bh__message_list *arrived = &self->consumer.arrived;
    bh__message_list waiting = {.first = NULL};
    if (!arrived->first || self->stage != BH__WORKING ||
        (arrived->count == self->waiting_count && self->context.work_queues.due_count))
        return;
    for (bh_message *message; (message = bh__message_list_pop(arrived));) {
        if (bh__settle_dead_letter(&self->context, message))
            bh_message_free(message);
        else
            bh__message_list_push(&waiting, message);
    }
    *arrived = waiting;
    self->waiting_count = waiting.count;
}

unsigned bh__engine_state(const bh__engine *self)
{
    const bh__context *context = &self->context;
    int has_drained = self->stage == BH__DRAINING && bh__ledger_unsettled(context->ledger) == 0;
    return (unsigned)is_alive(&context->consume.link) + (unsigned)is_alive(&context->publish.link) * 2 +
           (unsigned)self->consumer.is_consuming * 4 + (unsigned)context->setup.is_declared * 8 +
           (unsigned)self->parked_reader.result * 16 + (unsigned)self->wanted_count * 64 +
           (context->work_queues.due_count ? 1U << 31 : 0) + (has_drained ? 1U << 30 : 0) +
           (self->parked_reader.entry ? 1U << 29 : 0) + (bh_flow_is_cancelled(self->gate.flow) ? 1U << 28 : 0);
}

void bh__engine_pump(bh__engine *self, int64_t until_ms)
{
    bh__link *const links[] = {&self->context.consume.link, &self->context.publish.link};
    int64_t now_ms = bh__monotonic_ms();
    int ready[2];
    unsigned before = bh__engine_state(self);
    settle_in_time(self, now_ms);
    if (self->context.settings->relay)
        settle_arrived_dead_letters(self);
    if (self->stage == BH__WORKING)
        bh__gate_update(&self->gate, &self->consumer, &self->context);
    bh__engine_advance(self);
    for (int i = 0; i < 2; i++) {
        if (links[i]->phase == BH__TALKING)
            bh__link_flush(links[i], now_ms);
    }
    wait_for_io(self, bh__engine_state(self) == before ? until_ms : now_ms, ready);
    now_ms = bh__monotonic_ms();
    for (int i = 0; i < 2; i++) {
        if (links[i]->phase != BH__TALKING || (!ready[i] && !links[i]->has_more))
            continue;
        bh__link_flush(links[i], now_ms);
        if (is_alive(links[i]))
            bh__link_read(links[i], now_ms);
        dispatch_frames(self, links[i]);
    }
    for (int i = 0; i < 2; i++)
        bh__link_beat(links[i], now_ms); /* after reading, because unread bytes are a sign of life */
    if (self->stage == BH__WORKING)
        bh__probe_check(&self->probe, &self->context);
    check_busy(self);
    if (!self->context.settings->relay)
        offer_arrived(self);
}
