#include "engine/engine.h"

#include "engine/decision.h"
#include "engine/pacing.h"
#include "memory.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

void bh__engine_free(bh__engine *self)
{
    bh__publisher_free(&self->publisher);
    bh__getter_free(&self->getter);
    bh__context_free(&self->context);
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
    case BH__LEAVING:
        break;
    }
    return 0;
}

/* --------------------------------------------------------------------------------------------------- the ledger's steps */

/* The channel of the consume link that has this number in the ledger; 0: none. */
static amqp_channel_t amqp_channel_of(const bh__engine *self, int64_t number)
{
    if (self->consumer.is_open && self->consumer.number == number)
        return self->consumer.channel;
    return self->getter.is_open && self->getter.number == number ? BH__CHANNEL_GET : 0;
}

static void on_ack_step(bh__engine *self)
{
    const bh_ledger *ledger = self->context.ledger;
    amqp_channel_t channel = amqp_channel_of(self, bh_ledger_step_channel(ledger));
    amqp_basic_ack_t ack = {.delivery_tag = (uint64_t)bh_ledger_step_tag(ledger),
                            .multiple = bh_ledger_step_multiple(ledger)};
    if (channel)
        bh__link_send(&self->context.consume.link, channel, AMQP_BASIC_ACK_METHOD, &ack);
}

static void on_dismiss_step(bh__engine *self, bh_step step)
{
    const bh_ledger *ledger = self->context.ledger;
    amqp_channel_t channel = amqp_channel_of(self, bh_ledger_step_channel(ledger));
    uint64_t tag = (uint64_t)bh_ledger_step_tag(ledger);
    amqp_basic_nack_t nack = {.delivery_tag = tag, .requeue = step == BH_STEP_GIVE_BACK};
    amqp_basic_reject_t reject = {.delivery_tag = tag, .requeue = 1};
    bh__release(&self->context, bh_ledger_step_entry(ledger));
    if (!channel)
        return;
    if (step == BH_STEP_REJECT)
        bh__link_send(&self->context.consume.link, channel, AMQP_BASIC_REJECT_METHOD, &reject);
    else
        bh__link_send(&self->context.consume.link, channel, AMQP_BASIC_NACK_METHOD, &nack);
}

static void on_declare_step(bh__engine *self)
{
    int64_t rung_ms = bh_ledger_step_delay_ms(self->context.ledger);
    void *rungs = self->wanted_rungs;
    if (bh__reserve(&rungs, &self->wanted_capacity, sizeof *self->wanted_rungs, self->wanted_count + 1)) {
        self->wanted_rungs = rungs;
        self->wanted_rungs[self->wanted_count++] = rung_ms;
    } else {
        bh__report_set(&self->publisher.words, BH_ERR_NO_MEMORY, "no memory to declare a wait queue");
        bh_ledger_rung(self->context.ledger, rung_ms, BH_ERR_NO_MEMORY, bh__monotonic_ms());
    }
}

static void send_copy(bh__engine *self, int64_t number, bh_message *message)
{
    if (bh__wants(&self->context, BH_EVENT_RETRIED))
        message->copy->sent_us = bh__monotonic_us();
    bh__publisher_send(&self->publisher, &self->context, number, message);
}

static void on_publish_step(bh__engine *self)
{
    bh__context *context = &self->context;
    int64_t number = bh_ledger_step_publisher(context->ledger);
    bh_message *message = bh__held(context, bh_ledger_step_entry(context->ledger));
    if (!message)
        return;
    if (!message->copy) /* there was no memory for it before */
        bh__settle(context, message);
    else if (message->copy->properties.size >
             bh__link_header_room(&context->publish.link)) /* another broker's frame_max */
        bh__refuse(context, message, BH_ERR_FRAME, bh_status_text(BH_ERR_FRAME));
    else
        send_copy(self, number, message);
}

/* The copies of parked messages are told by bh_worker_replay's own event. */
static void on_told_of_replay(bh__engine *self, bh_event_kind kind, const bh_message *message)
{
    bh_status status;
    self->getter.result = kind == BH_EVENT_REPLAYED ? BH__REPLAY_WENT : BH__REPLAY_FAILED;
    if (kind == BH_EVENT_REPLAYED)
        return;
    bh_bytes text = bh__publisher_explain(&self->publisher, &self->context, message->copy, &status);
    bh__report_set(&self->getter.problem, status, "%.*s", (int)text.size, text.data);
}

static void on_told_of_message(bh__engine *self, bh_event_kind kind, const bh_message *message)
{
    bh__context *context = &self->context;
    const bh__copy *copy = message->copy;
    bh__news news = {.kind = kind,
                     .queue = copy->queue,
                     .id = copy->id,
                     .message = message,
                     .attempts = copy->attempts,
                     .delay_ms = bh_ledger_step_delay_ms(context->ledger),
                     .count = 1};
    if (kind == BH_EVENT_RETRIED || kind == BH_EVENT_PARKED) {
        news.delay_ms = copy->delay_ms;
        news.reason = copy->reason;
        news.error = copy->error;
        news.duration_us = copy->sent_us ? bh__monotonic_us() - copy->sent_us : 0;
    } else {
        news.text = bh__publisher_explain(&self->publisher, context, copy, &news.status);
    }
    bh__tell(context, news);
}

/* A broker that does not confirm may be cut off from its cluster: another one is tried. */
static void on_unconfirmed(bh__engine *self)
{
    bh__context *context = &self->context;
    bh__tell(context,
             (bh__news){.kind = BH_EVENT_UNCONFIRMED,
                        .status = BH_ERR_PUBLISH,
                        .text = bh_ledger_words(context->ledger, bh_str(""), bh_str(""), bh_str(""), bh_str("")),
                        .count = bh_ledger_step_count(context->ledger),
                        .connection = &context->publish});
    bh__link_fail(&context->publish.link, BH_ERR_CONNECTION,
                  "the broker did not confirm within %lld ms; this node may have lost its cluster",
                  (long long)context->settings->confirm_timeout_ms);
}

static void on_tell_step(bh__engine *self)
{
    bh__context *context = &self->context;
    bh_event_kind kind = bh_ledger_step_event(context->ledger);
    int64_t entry = bh_ledger_step_entry(context->ledger);
    const bh_message *message = bh__held(context, entry);
    if (kind == BH_EVENT_UNCONFIRMED)
        on_unconfirmed(self);
    if (!message || !message->copy)
        return;
    if (entry == self->getter.entry)
        on_told_of_replay(self, kind, message);
    else
        on_told_of_message(self, kind, message);
    context->left_count += kind == BH_EVENT_REFUSED && entry != self->getter.entry;
    if (kind != BH_EVENT_NACKED && kind != BH_EVENT_RETURNED) /* those go out again */
        bh__release(context, entry);
}

static int may_publish(const bh__engine *self)
{
    const bh__link *link = &self->context.publish.link;
    return self->context.is_declared && bh__publisher_is_open(&self->publisher) && !bh__link_is_broken(link) &&
           bh__buffer_size(&link->out) < BH__MOST_UNSENT_BYTES;
}

void bh__engine_advance(bh__engine *self)
{
    int64_t now_ms = bh__monotonic_ms();
    for (bh_step step; (step = bh_ledger_next(self->context.ledger, now_ms, may_publish(self))) != BH_STEP_REST;) {
        switch (step) {
        case BH_STEP_TELL:
            on_tell_step(self);
            break;
        case BH_STEP_ACK:
            on_ack_step(self);
            break;
        case BH_STEP_NACK:
        case BH_STEP_REJECT:
        case BH_STEP_GIVE_BACK:
            on_dismiss_step(self, step);
            break;
        case BH_STEP_DECLARE:
            on_declare_step(self);
            break;
        case BH_STEP_PUBLISH:
            on_publish_step(self);
            break;
        case BH_STEP_REST:
            break;
        }
    }
    bh__consumer_look_at_left(&self->consumer, &self->context);
    atomic_store(&self->context.mailbox->unconfirmed_count, bh_ledger_copies(self->context.ledger));
}

void bh__engine_settle(bh__engine *self)
{
    bh__queue settled = {.first = NULL};
    if (!self->consumer.is_doubtful)
        bh__mailbox_collect(self->context.mailbox, &settled);
    self->has_settled = settled.first != NULL;
    for (bh_message *message; (message = bh__queue_pop(&settled));) {
        bh__settle(&self->context, message);
        bh_message_free(message);
    }
}

/* --------------------------------------------------------------------------------------------------------- frames in */

/* Only the connection that publishes is ever blocked. */
static void on_blocked(bh__engine *self, const bh__link *link, int is_blocked, bh_bytes reason)
{
    bh__context *context = &self->context;
    if (link != &context->publish.link || context->publish.link.is_blocked == is_blocked)
        return;
    context->publish.link.is_blocked = is_blocked;
    bh_ledger_block(context->ledger, is_blocked, bh__monotonic_ms());
    bh__tell(context, (bh__news){.kind = is_blocked ? BH_EVENT_BLOCKED : BH_EVENT_UNBLOCKED,
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
        return; /* whoever waits for it takes it; of this one, content follows */
    const amqp_method_t *its_method = is_method ? &method : NULL;
    if (frame->channel == 0)
        on_connection_method(self, link, &method);
    else if (link == &context->publish.link)
        bh__publisher_on_frame(&self->publisher, context, frame, its_method);
    else if (frame->channel == BH__CHANNEL_GET)
        bh__getter_on_frame(&self->getter, context, frame, its_method);
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

/* ----------------------------------------------------------------------------------------------------------- waiting */

static int is_alive(const bh__link *link)
{
    return link->phase != BH__CLOSED && !bh__link_is_broken(link);
}

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Until when nothing is offered (BH__GUARD_MS); 0: no copy of the guard's is under way. */
static int64_t guarding_until_ms(const bh__engine *self)
{
    const bh__context *context = &self->context;
    return context->guarded_count > 0 ? context->guarded_ms + BH__GUARD_MS : 0;
}

static int64_t next_ms(const bh__engine *self, int64_t until_ms, int64_t now_ms)
{
    const bh__context *context = &self->context;
    int64_t due_ms = bh_ledger_due_ms(context->ledger);
    int64_t next = self->stage == BH__LEAVING ? until_ms : earlier(until_ms, atomic_load(&context->mailbox->stop_ms));
    if (due_ms != BH_LEDGER_NEVER)
        next = earlier(next, due_ms);
    if (self->consumer.arrived.first && guarding_until_ms(self))
        next = earlier(next, guarding_until_ms(self));
    if (self->stage == BH__WORKING)
        next = earlier(next, bh__probe_due_ms(&self->probe, context));
    next = earlier(next, bh__link_next_beat_ms(&context->consume.link));
    next = earlier(next, bh__link_next_beat_ms(&context->publish.link));
    return context->consume.link.has_more || context->publish.link.has_more ? now_ms : next;
}

/* Waits; `ready` gets whether something happened to each link's socket. */
static void wait_for_news(bh__engine *self, int64_t until_ms, int ready[2])
{
    bh__mailbox *mailbox = self->context.mailbox;
    const bh__link *const links[] = {&self->context.consume.link, &self->context.publish.link};
    struct pollfd polled[3] = {{.fd = mailbox->wake[0], .events = POLLIN}};
    for (int i = 0; i < 2; i++)
        polled[i + 1] =
            (struct pollfd){.fd = is_alive(links[i]) ? links[i]->socket.fd : -1, .events = bh__link_events(links[i])};
    int64_t left_ms = next_ms(self, until_ms, bh__monotonic_ms()) - bh__monotonic_ms();
    int timeout_ms = left_ms < 0 ? 0 : left_ms > BH__LONGEST_POLL_MS ? BH__LONGEST_POLL_MS : (int)left_ms;
    int naps = self->has_settled || atomic_load(&mailbox->settled_count) > 0;
    bh__sleep sleep = naps ? BH__NAPPING : BH__ASLEEP;
    if (naps && timeout_ms > BH__NAP_MS)
        timeout_ms = BH__NAP_MS;
    if (!bh__mailbox_lie_down(mailbox, sleep) && !self->consumer.is_doubtful)
        timeout_ms = 0;
    int count = poll(polled, 3, timeout_ms);
    self->is_woken = count == 0 || polled[0].revents;
    bh__mailbox_get_up(mailbox, count > 0 && polled[0].revents);
    for (int i = 0; i < 2; i++)
        ready[i] = count > 0 && polled[i + 1].fd >= 0 && polled[i + 1].revents;
}

/* While the sockets are busy, what was settled is carried out once a millisecond, or when it is much. */
static void settle_in_time(bh__engine *self, int64_t now_ms)
{
    const bh__mailbox *mailbox = self->context.mailbox;
    if (!self->is_woken && now_ms == self->settled_ms && atomic_load(&mailbox->settled_count) < mailbox->many)
        return;
    self->settled_ms = now_ms;
    bh__engine_settle(self);
}

/* Offers what arrived to the callers, and rests a little while the broker may send as much again (BH__REST_NS). */
static void offer_arrived(bh__engine *self)
{
    if (!self->consumer.arrived.first || self->stage != BH__WORKING || bh__monotonic_ms() < guarding_until_ms(self))
        return;
    bh__mailbox_offer(self->context.mailbox, &self->consumer.arrived);
    if (bh_ledger_unsettled(self->context.ledger) < self->context.settings->prefetch / 2) {
        struct timespec time = {0, BH__REST_NS};
        nanosleep(&time, NULL);
    }
}

/* Decides on the dead letters that arrived; those whose work queue is looked for wait. */
static void relay_arrived(bh__engine *self)
{
    bh__queue *arrived = &self->consumer.arrived;
    bh__queue waiting = {.first = NULL};
    if (!arrived->first || self->stage != BH__WORKING ||
        (arrived->count == self->waiting_count && self->context.places.wanted_count))
        return;
    for (bh_message *message; (message = bh__queue_pop(arrived));) {
        if (bh__relay(&self->context, message))
            bh_message_free(message);
        else
            bh__queue_push(&waiting, message);
    }
    *arrived = waiting;
    self->waiting_count = waiting.count;
}

unsigned bh__engine_news(const bh__engine *self)
{
    const bh__context *context = &self->context;
    int has_drained = self->stage == BH__DRAINING && bh_ledger_unsettled(context->ledger) == 0;
    return (unsigned)is_alive(&context->consume.link) + (unsigned)is_alive(&context->publish.link) * 2 +
           (unsigned)self->consumer.is_consuming * 4 + (unsigned)context->is_declared * 8 +
           (unsigned)self->getter.result * 16 + (unsigned)self->wanted_count * 64 +
           (context->places.wanted_count ? 1U << 31 : 0) + (has_drained ? 1U << 30 : 0) +
           (self->getter.entry ? 1U << 29 : 0);
}

void bh__engine_pump(bh__engine *self, int64_t until_ms)
{
    bh__link *const links[] = {&self->context.consume.link, &self->context.publish.link};
    int64_t now_ms = bh__monotonic_ms();
    int ready[2];
    unsigned before = bh__engine_news(self);
    settle_in_time(self, now_ms);
    if (self->context.settings->relay)
        relay_arrived(self);
    bh__engine_advance(self);
    for (int i = 0; i < 2; i++) {
        if (links[i]->phase == BH__TALKING)
            bh__link_flush(links[i], now_ms);
    }
    wait_for_news(self, bh__engine_news(self) == before ? until_ms : now_ms, ready);
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
        bh__link_beat(links[i], now_ms); /* after reading: what waits in the kernel is a sign of life */
    if (self->stage == BH__WORKING)
        bh__probe_look(&self->probe, &self->context);
    if (!self->context.settings->relay)
        offer_arrived(self);
}
