#include "worker/engine/consumer.h"

#include "worker/engine/decision.h"
#include "worker/engine/pacing.h"
#include "ledger/internal.h"
#include "worker/wire/content.h"
#include "topology/internal.h"

#include <backhop/adapter/declaring.h>
#include <stdio.h>
#include <string.h>

enum {
    PREFETCHES = 2,       /* the most messages in hand, in prefetches */
    EARLY_MS = 1000,      /* clocks of hosts may differ by less */
    SET_BACK_MS = 3600000 /* so long a clock that was set back is ignored */
};

bh_status bh__consumer_opened(bh__consumer *self, bh__context *context)
{
    bh_status status = bh_ledger_open_channel(context->ledger, &self->ledger_channel);
    self->is_open = status == BH_OK;
    self->next_tag = 1;
    return status;
}

int64_t bh__consumer_end(bh__consumer *self, bh__context *context)
{
    bh__message_list untaken = {.first = NULL};
    bh__mailbox_withdraw(context->mailbox, &untaken);
    bh__message_list_append(&untaken, &self->arrived);
    for (bh_message *message; (message = bh__message_list_pop(&untaken)); bh_message_free(message))
        bh_ledger_give_back(context->ledger, message->entry);
    bh__assembler_clear(&self->assembler);
    int64_t count = self->is_open ? bh__release_channel(context, self->ledger_channel) : 0;
    self->ledger_channel = 0;
    self->is_open = self->is_consuming = self->is_doubtful = 0;
    context->setup.is_ready = 0;
    return count;
}

/* Returns the message of the channel that was in hand longest; NULL: nothing was in hand. */
static const bh_message *find_oldest(const bh__consumer *self, const bh__context *context)
{
    const bh_message *oldest = NULL;
    for (size_t i = 0; i < context->in_hand.capacity; i++) {
        const bh_message *each = context->in_hand.items[i];
        if (each && each->channel == self->ledger_channel && (!oldest || each->arrived_ms < oldest->arrived_ms))
            oldest = each;
    }
    return oldest;
}

/* Writes which message was in hand longest, and for how long. "": nothing was in hand. */
static void describe_oldest(const bh__consumer *self, bh__context *context, bh__report *out)
{
    const bh_message *oldest = find_oldest(self, context);
    if (!oldest)
        return;
    bh_bytes id = bh__id_of(context, oldest);
    bh__report_add(out, id.size ? "; message \"" : "; a message without an id");
    bh__report_add_shown(out, id, 0);
    bh__report_add(out, id.size ? "\" was in hand for " : " was in hand for ");
    bh__report_add_duration(out, bh__monotonic_ms() - oldest->arrived_ms);
}

int64_t bh__consumer_time_out(bh__consumer *self, bh__context *context, bh__report *reason)
{
    describe_oldest(self, context, reason);
    return bh__consumer_end(self, context);
}

void bh__consumer_emit_cancelled(bh__consumer *self, bh__context *context, bh_status status, const char *reason,
                                 int64_t count)
{
    char text[900];
    snprintf(text, sizeof text, "the consumer of \"%s\" has ended: %s",
             bh__topology_queue(context->settings->topology).data, reason);
    self->is_consuming = 0;
    context->setup.is_ready = 0;
    context->setup.is_declared = 0; /* the queue and its bindings may be deleted */
    bh__note_failure(context, &context->setup.back_off);
    bh__emit(context, (bh__event_data){.kind = BH_EVENT_CANCELLED,
                                       .status = status,
                                       .text = bh_str(text),
                                       .count = count,
                                       .connection = &context->consume});
}

/* -------------------------------------------------------------------------------------- methods */

/* Handles basic.cancel. From 4.3 on, it can mean that a message was held too long. The broker
 * then requeued that message and ignores its acknowledgement. bh__resolve_cancel finds out. */
static void on_cancel(bh__consumer *self, bh__context *context, const amqp_basic_cancel_t *cancel)
{
    if (!self->is_consuming || !bh__same(bh__from_amqp(cancel->consumer_tag), bh_str(self->tag)))
        return;
    self->is_doubtful = bh__is_at_least_4_3(context);
    self->cancelled_ms = bh__monotonic_ms();
    const bh_message *oldest = find_oldest(self, context);
    self->held_ms = oldest ? self->cancelled_ms - oldest->arrived_ms : 0;
    bh__consumer_emit_cancelled(self, context, BH_ERR_CANCELLED,
                                self->is_doubtful ? "the queue was deleted or is not available, or a message was held "
                                                    "longer than the broker's consumer timeout"
                                                  : "the queue was deleted, or is not available",
                                0);
    self->retry_ms = context->setup.back_off.due_ms;
    if (self->is_doubtful) /* looks for the queue at once, before another worker declares it again */
        context->setup.back_off.due_ms = self->cancelled_ms;
}

static void on_consume_channel_close(bh__consumer *self, bh__context *context, const amqp_channel_close_t *close)
{
    bh__report reason = {.size = 0};
    bh__link_answer_channel_close(&context->consume.link, self->channel, close, "consuming", &reason);
    int has_timed_out = bh__find(bh__from_amqp(close->reply_text), "timed out") != NULL;
    int64_t count = has_timed_out ? bh__consumer_time_out(self, context, &reason) : bh__consumer_end(self, context);
    bh__consumer_emit_cancelled(self, context, BH_ERR_CHANNEL, bh__report_text(&reason).data, count);
    bh__report_free(&reason);
}

static void on_consume_method(bh__consumer *self, bh__context *context, const amqp_method_t *method)
{
    switch (method->id) {
    case AMQP_BASIC_DELIVER_METHOD: {
        const amqp_basic_deliver_t *deliver = method->decoded;
        bh__assembler_begin(&self->assembler, deliver->delivery_tag, deliver->redelivered != 0, deliver->exchange,
                            deliver->routing_key);
        break;
    }
    case AMQP_BASIC_CANCEL_METHOD:
        on_cancel(self, context, method->decoded);
        break;
    case AMQP_CHANNEL_CLOSE_METHOD:
        on_consume_channel_close(self, context, method->decoded);
        break;
    default:
        break;
    }
}

/* ----------------------------------------------------------------------------------- deliveries */

static int64_t count_in_hand(const bh__context *context)
{
    return bh__ledger_unsettled(context->ledger) + bh_ledger_count(context->ledger, BH_STATE_ABANDONED) -
           context->skipped_count;
}

void bh__consumer_limit(bh__consumer *self, const bh__context *context)
{
    self->most_in_hand = count_in_hand(context) + PREFETCHES * context->settings->prefetch;
}

/* Returns the mark that identifies a message when it comes again; 0: it has none. A relay decides
 * on each message at once. */
static uint64_t fingerprint_of(const bh__context *context, const bh_message *message)
{
    if (context->settings->relay)
        return 0;
    return bh__content_fingerprint(context->key, message->exchange, message->routing_key, message->properties,
                                   message->body);
}

/* Handles a delivery of a message that this worker has in hand already, or has settled. The
 * message that a caller may have stands for both deliveries. */
static void take_over(const bh__consumer *self, const bh__context *context, bh_message *again)
{
    bh_message *earlier = bh__find_in_hand(context, again->entry);
    if (earlier)
        earlier->channel = self->ledger_channel;
    bh_message_free(again);
}

/* Enters the delivery in the ledger. *was_called: its handler was called before. */
static bh_status enter_delivery(const bh__consumer *self, bh__context *context, bh_message *message, int *was_called)
{
    message->worker = context->worker;
    message->channel = self->ledger_channel;
    message->arrived_ms = bh__monotonic_ms();
    const char *random = bh__draw(context, sizeof message->random);
    if (random) { /* without it, the first copy gets another id than the events before it */
        memcpy(message->random, random, sizeof message->random);
        message->has_random = 1;
    }
    bh_status status =
        bh__ledger_arrive_again(context->ledger, self->ledger_channel, (int64_t)message->delivery_tag,
                                fingerprint_of(context, message), message->redelivered, &message->entry, was_called);
    return status == BH_OK && !*was_called && !bh__add_in_hand(context, message) ? BH_ERR_NO_MEMORY : status;
}

static void note_guarded(bh__context *context, bh_message *message)
{
    if (context->guard.count++ == 0)
        context->guard.since_ms = bh__monotonic_ms();
    message->is_guarded = 1;
}

/* Returns 0, and fails the link, if the broker must not send this delivery. */
static int is_allowed(bh__consumer *self, bh__context *context, const bh_message *message)
{
    bh__link *link = &context->consume.link;
    if (message->delivery_tag != self->next_tag++) {
        bh__link_fail(link, BH_ERR_CONNECTION, "a delivery came out of order");
    } else if (count_in_hand(context) >= self->most_in_hand) {
        bh__link_fail(link, BH_ERR_CONNECTION,
                      "the broker ignores the prefetch of %lld: %lld messages are in hand, and it sends more; check "
                      "proxies between this worker and RabbitMQ",
                      (long long)context->settings->prefetch, (long long)count_in_hand(context));
    }
    return !bh__link_is_broken(link);
}

/* Returns the time since the epoch. If the clock was set back within the last hour, ignores this
 * step: earlier copies have due times of the earlier clock. */
static int64_t steady_epoch_ms(bh__early *early)
{
    int64_t now_ms = bh__monotonic_ms(), ahead_ms = bh__epoch_ms() - now_ms;
    if (ahead_ms >= early->ahead_ms || now_ms >= early->until_ms) {
        early->ahead_ms = ahead_ms;
        early->until_ms = now_ms + SET_BACK_MS;
    }
    return now_ms + early->ahead_ms;
}

/* Emits that retries come back before their time, once a minute at most. */
static void note_early(bh__context *context, const bh_message *message)
{
    bh__early *early = &context->early;
    if (message->redelivered || !bh__is_observed(context, BH_EVENT_EARLY))
        return;
    int64_t early_ms = bh__content_integer(message->properties, "backhop-due") - steady_epoch_ms(early);
    if (early_ms < EARLY_MS || early_ms > BH_POLICY_LONGEST_MS) /* the header is untrusted */
        return;
    early->count++;
    early->most_ms = early_ms > early->most_ms ? early_ms : early->most_ms;
    if (bh__monotonic_ms() < early->next_ms)
        return;
    bh__emit(context,
             (bh__event_data){.kind = BH_EVENT_EARLY, .count = early->count, .duration_us = early->most_ms * 1000});
    early->count = early->most_ms = 0;
    early->next_ms = bh__monotonic_ms() + BH_LOOK_MS;
}

static void on_delivery(bh__consumer *self, bh__context *context, bh_message *message)
{
    bh__link *link = &context->consume.link;
    int was_called = 0;
    bh_status status =
        is_allowed(self, context, message) ? enter_delivery(self, context, message, &was_called) : BH_ERR_CONNECTION;
    if (status != BH_OK) {
        bh_message_free(message);
        bh__link_fail(link, status, "no memory for a delivery");
        return;
    }
    context->alive_ms = bh__monotonic_ms();
    note_early(context, message);
    if (was_called) {
        take_over(self, context, message);
        return;
    }
    if (message->redelivered && !context->settings->relay && bh__guard(context, message)) {
        atomic_store(&message->settling, BH__SETTLED);
        note_guarded(context, message);
        return;
    }
    bh__message_keep(message); /* for its taker */
    bh__message_list_push(&self->arrived, message);
}

void bh__consumer_on_frame(bh__consumer *self, bh__context *context, const bh__frame *frame,
                           const amqp_method_t *method)
{
    if (!self->is_open || frame->channel != self->channel)
        return; /* frames of a channel that is closed */
    if (method) {
        on_consume_method(self, context, method);
        return;
    }
    bh_message *message;
    bh_status status = bh__assembler_add(&self->assembler, frame, &message);
    if (status != BH_OK)
        bh__link_fail(&context->consume.link, status, "a message could not be received (%s)",
                      status == BH_ERR_NO_MEMORY ? "no memory" : "its frames are out of order");
    else if (message)
        on_delivery(self, context, message);
}

/* -------------------------------------------------------------------------- abandoned, requeued */

void bh__consumer_cancel(bh__consumer *self, bh__context *context)
{
    amqp_basic_cancel_t cancel = {.consumer_tag = amqp_cstring_bytes(self->tag), .nowait = 1};
    if (!self->is_consuming)
        return;
    bh__link_send(&context->consume.link, self->channel, AMQP_BASIC_CANCEL_METHOD, &cancel);
    self->is_consuming = 0;
}

void bh__consumer_check_abandoned(bh__consumer *self, bh__context *context)
{
    if (context->abandoned_count - self->abandoned_before >= context->settings->prefetch)
        bh__consumer_cancel(self, context);
}

int64_t bh__consumer_count_untaken(const bh__consumer *self, const bh__context *context)
{
    return (int64_t)(bh__mailbox_waiting(context->mailbox) + self->arrived.count);
}

void bh__consumer_give_back_ready(bh__consumer *self, bh__context *context)
{
    bh__message_list untaken = {.first = NULL};
    bh__message_list_append(&untaken, &self->arrived);
    bh__mailbox_withdraw(context->mailbox, &untaken);
    for (bh_message *message; (message = bh__message_list_pop(&untaken));) {
        bh_ledger_give_back(context->ledger, message->entry);
        bh_message_free(message);
    }
}

void bh__consumer_give_back_all(const bh__consumer *self, bh__context *context)
{
    if (!self->is_open)
        return;
    amqp_basic_nack_t nack = {.delivery_tag = 0, .multiple = 1, .requeue = 1}; /* zero messages are no error */
    bh__link_send(&context->consume.link, self->channel, AMQP_BASIC_NACK_METHOD, &nack);
}
