#include "worker/engine/decision.h"

#include "base/memory.h"
#include "history/internal.h"
#include "ledger/internal.h"
#include "plan/internal.h"
#include "relay/internal.h"
#include "worker/wire/content.h"

#include <backhop/adapter/declaring.h>
#include <backhop/adapter/event.h>
#include <stdlib.h>

enum { KEPT = 7 /* a copy's strings, each with a zero byte after it */ };

bh_status bh__read_message(const bh__settings *settings, const bh_message *message, bh_delivery *delivery,
                           bh_history *history)
{
    bh_status status = bh__content_read(delivery, message->exchange, message->routing_key, message->properties);
    if (status == BH_OK && history)
        status = bh_history_read(history, delivery, settings->topology);
    if (status == BH_OK && history && message->has_random)
        status = bh_history_assign_id(history, (bh_bytes){message->random, sizeof message->random});
    return status;
}

bh_bytes bh__id_of(bh__context *self, const bh_message *message)
{
    return bh__read_message(self->settings, message, self->work.delivery, self->work.history) == BH_OK
               ? bh__history_event_id(self->work.history)
               : bh_str("");
}

/* Prepares the plan for these connections, and draws its random bytes. */
static bh_status prepare_plan(bh__context *self, bh_bytes *random)
{
    size_t frame_max = self->consume.link.frame_max < self->publish.link.frame_max ? self->consume.link.frame_max
                                                                                   : self->publish.link.frame_max;
    *random = (bh_bytes){bh__draw(self, BH_PLAN_RANDOM_BYTES), BH_PLAN_RANDOM_BYTES};
    bh_status status = bh_plan_set_frame_max(self->work.plan, (int64_t)frame_max);
    return status == BH_OK && !random->data ? BH_ERR_STATE : status;
}

/* Reads the message and prepares the plan. */
static bh_status read_for_plan(bh__context *self, const bh_message *message, bh_bytes *random)
{
    bh_status status = bh__read_message(self->settings, message, self->work.delivery, self->work.history);
    return status == BH_OK ? prepare_plan(self, random) : status;
}

/* ------------------------------------------------------------------------------------- the copy */

/* Writes the properties of the plan's copy. BH_ERR_FRAME if they fit no frame of the publish
 * connection. */
static bh_status write_properties(bh__context *self, const bh_message *message, bh_bytes *out)
{
    bh__buffer *scratch = &self->work.properties;
    *out = bh_str("");
    if (!bh__plan_publishes(self->work.plan))
        return BH_OK;
    bh__buffer_clear(scratch);
    bh_status status = bh__content_copy(scratch, self->work.plan, message->properties);
    *out = (bh_bytes){scratch->data ? scratch->data : "", bh__buffer_size(scratch)};
    return status == BH_OK && out->size > bh__link_header_room(&self->publish.link) ? BH_ERR_FRAME : status;
}

static bh__copy *make_copy(const bh__context *self, bh_bytes properties)
{
    const bh_plan *plan = self->work.plan;
    bh_planned planned;
    bh_copy to;
    bh_plan_read(plan, &planned);
    bh_plan_copy(plan, &to);
    bh_bytes exchange = to.exchange, routing_key = to.routing_key;
    bh_bytes reason = planned.reason, id = bh__content_string(properties, "backhop-id");
    bh_bytes queue = bh__relay_queue(self->settings->relay);
    if (id.size == 0)
        id = bh__history_event_id(self->work.history);
    int has_error = bh__is_observed(self, bh_event_of_copy(planned.action));
    bh_bytes error = has_error ? bh__plan_error(plan) : bh_str("");
    bh__copy *copy = malloc(sizeof *copy + exchange.size + routing_key.size + properties.size + reason.size + id.size +
                            queue.size + error.size + KEPT);
    if (!copy)
        return NULL;
    char *at = copy->data;
    *copy = (bh__copy){.action = planned.action,
                       .mandatory = to.mandatory,
                       .attempts = planned.attempts,
                       .deferrals = planned.deferrals,
                       .delay_ms = planned.delay_ms};
    copy->exchange = bh__keep(&at, exchange);
    copy->routing_key = bh__keep(&at, routing_key);
    copy->properties = bh__keep(&at, properties);
    copy->reason = bh__keep(&at, reason);
    copy->id = bh__keep(&at, id);
    copy->queue = bh__keep(&at, queue);
    copy->error = bh__keep(&at, error);
    return copy;
}

/* Records the plan in the ledger, and the copy in the message. */
static bh_status record_plan(bh__context *self, bh_message *message)
{
    bh_bytes properties;
    bh_status status = write_properties(self, message, &properties);
    if (status != BH_OK)
        return status;
    bh__copy *copy = make_copy(self, properties);
    if (!copy)
        return BH_ERR_NO_MEMORY;
    free(message->copy);
    message->copy = copy;
    bh_copy planned;
    bh_plan_copy(self->work.plan, &planned);
    int64_t rung_ms = bh_mode_makes_rungs((bh_mode)self->settings->mode) ? planned.rung_ms : 0;
    return bh_ledger_settle(self->ledger, message->entry, copy->action, rung_ms, copy->id, copy->exchange,
                            copy->routing_key);
}

/* ------------------------------------------------------------------------------------ decisions */

void bh__abandon(bh__context *self, bh_message *message, bh_status status, bh_bytes text)
{
    if (bh_ledger_abandon(self->ledger, message->entry, bh__monotonic_ms()) == BH_OK) {
        self->abandoned_count++;
        bh__emit(self, (bh__event_data){.kind = BH_EVENT_REFUSED,
                                        .status = status,
                                        .text = text,
                                        .id = message->copy ? message->copy->id : bh__id_of(self, message),
                                        .message = message,
                                        .attempts = message->copy ? message->copy->attempts : 0,
                                        .count = 1});
    }
    bh__release(self, message->entry);
}

static bh_status decide(bh__context *self, bh_message *message)
{
    bh_bytes error = {message->error ? message->error : "", message->error_size};
    bh_bytes random;
    bh_status status = read_for_plan(self, message, &random);
    if (status == BH_OK)
        status = bh_plan_set_traceparent(self->work.plan, bh_str(message->traceparent));
    if (status == BH_OK)
        status = bh_plan_make(self->work.plan, self->work.delivery, self->work.history,
                              message->policy ? message->policy : self->settings->policy, self->settings->topology,
                              message->outcome, error, message->retry_after_ms, bh__epoch_ms(), random);
    return status == BH_OK ? record_plan(self, message) : status;
}

/* Returns whether the work queue of a dead letter exists. */
static bh__presence find_presence(bh__context *self, const bh__dead_letter *letter)
{
    return letter->is_served ? bh__work_queues_look_up(&self->work_queues, letter->queue, bh__monotonic_ms())
                             : BH__MISSING;
}

static bh_status record_dead_letter(bh__context *self, bh_message *message)
{
    if (bh__plan_action(self->work.plan) != BH_ACTION_DROP)
        return record_plan(self, message);
    bh__emit(self, (bh__event_data){.kind = BH_EVENT_DROPPED,
                                    .queue = bh__relay_queue(self->settings->relay),
                                    .message = message,
                                    .history = self->work.history});
    bh_ledger_acknowledge(self->ledger, message->entry);
    bh__release(self, message->entry);
    return BH_OK;
}

static bh_status decide_dead_letter(bh__context *self, bh_message *message, bh__presence *presence)
{
    bh__relay *relay = self->settings->relay;
    bh__dead_letter letter;
    bh_bytes random;
    bh_status status =
        bh__content_read(self->work.delivery, message->exchange, message->routing_key, message->properties);
    if (status == BH_OK)
        status = bh__relay_read(relay, self->work.delivery, self->work.history, &letter);
    *presence = status == BH_OK ? find_presence(self, &letter) : BH__MISSING;
    if (*presence == BH__UNKNOWN)
        return BH_OK;
    if (status == BH_OK)
        status = prepare_plan(self, &random);
    if (status == BH_OK)
        status = bh__relay_plan(relay, self->work.plan, self->work.delivery, self->work.history,
                                *presence == BH__PRESENT, bh__epoch_ms(), random);
    return status == BH_OK ? record_dead_letter(self, message) : status;
}

/* Repeats the decision after a back-off. */
static void try_again_later(bh__context *self, const bh_message *message, bh_status status)
{
    bh_bytes text = status == BH_ERR_STATE ? bh_str("the system gives no random bytes; the message is settled later")
                                           : bh_str("there is no memory for a copy; the message is settled later");
    if (bh__ledger_postpone(self->ledger, message->entry, bh__monotonic_ms()) == BH_OK)
        bh__emit(self, (bh__event_data){.kind = BH_EVENT_UNAVAILABLE, .status = status, .text = text, .count = 1});
}

/* status: BH_OK: the message was settled too late; BH_ERR_CANCELLED: a stop aborted its handler. */
static void emit_stale(bh__context *self, const bh_message *message, bh_status status)
{
    bh__emit(
        self,
        (bh__event_data){
            .kind = BH_EVENT_STALE, .status = status, .id = bh__id_of(self, message), .message = message, .count = 1});
}

/* Handles a failed decision: repeats it, or abandons the message. */
static void end_decision(bh__context *self, bh_message *message, bh_status status)
{
    if (status == BH_ERR_NO_MEMORY || status == BH_ERR_STATE)
        try_again_later(self, message, status);
    else if (status != BH_OK)
        bh__abandon(self, message, status,
                    status == BH_ERR_CONTENT ? bh_str("the message's properties are malformed")
                                             : bh_status_text(status));
}

int bh__settle_dead_letter(bh__context *self, bh_message *message)
{
    bh__presence presence = BH__MISSING;
    if (bh__find_in_hand(self, message->entry) != message) /* its channel is closed: the broker delivers it again */
        return 1;
    bh_status status = decide_dead_letter(self, message, &presence);
    if (presence == BH__UNKNOWN)
        return 0;
    end_decision(self, message, status);
    return 1;
}

/* Decides again on a dead letter. If its work queue is checked now, repeats the decision later. */
static void settle_dead_letter_again(bh__context *self, bh_message *message)
{
    if (!bh__settle_dead_letter(self, message))
        try_again_later(self, message, BH_ERR_STATE);
}

/* Makes a throttled outcome a failure if the message cannot be deferred once more. */
static void count_deferrals(bh__context *self, bh_message *message)
{
    const bh_policy *policy = message->policy ? message->policy : self->settings->policy;
    if (bh__read_message(self->settings, message, self->work.delivery, self->work.history) == BH_OK)
        message->outcome = bh_plan_outcome(self->work.history, policy, self->settings->topology, message->outcome);
}

/* Emits the outcome of the handler. */
static void emit_handled(bh__context *self, bh_message *message)
{
    bh_event_kind kind = bh_event_of(message->outcome);
    if (message->is_reported || !bh__is_observed(self, kind) ||
        bh__read_message(self->settings, message, self->work.delivery, self->work.history) != BH_OK)
        return;
    message->is_reported = 1;
    bh__emit(self,
             (bh__event_data){
                 .kind = kind, .duration_us = message->taken_us, .message = message, .history = self->work.history});
}

/*
 * Returns 1 if settling the message has no effect any more. An orphan can be delivered again, but
 * not after a stop. The entry can be of another message, in another run.
 */
static int is_gone(bh__context *self, const bh_message *message)
{
    if (bh__find_in_hand(self, message->entry) != message)
        return 1;
    if (bh__ledger_is_orphan(self->ledger, message->entry) && atomic_load(&self->mailbox->stop_ms) != BH__NEVER)
        bh__ledger_drop_orphan(self->ledger, message->entry);
    return bh_ledger_state(self->ledger, message->entry) == BH_STATE_NONE;
}

void bh__decide(bh__context *self, bh_message *message)
{
    if (is_gone(self, message)) {
        emit_stale(self, message, BH_OK);
        if (bh__find_in_hand(self, message->entry) == message)
            bh__release(self, message->entry);
        return;
    }
    if (self->settings->relay) {
        settle_dead_letter_again(self, message);
        return;
    }
    if (message->outcome == BH_OUTCOME_RELEASED) {
        emit_stale(self, message, BH_ERR_CANCELLED);
        bh_ledger_give_back(self->ledger, message->entry);
        return;
    }
    if (message->outcome == BH_OUTCOME_THROTTLED)
        count_deferrals(self, message);
    if (!message->is_guarded && message->outcome != BH_OUTCOME_DEFERRED)
        emit_handled(self, message);
    if (message->outcome == BH_OUTCOME_OK || message->outcome == BH_OUTCOME_DROPPED) {
        bh_ledger_acknowledge(self->ledger, message->entry); /* the plan says the same for every message */
        bh__release(self, message->entry);
    } else {
        end_decision(self, message, decide(self, message));
    }
}

int bh__guard(bh__context *self, bh_message *message)
{
    bh_bytes random;
    bh_status status = read_for_plan(self, message, &random);
    if (status == BH_OK)
        status = bh_plan_guard(self->work.plan, self->work.delivery, self->work.history, self->settings->policy,
                               self->settings->topology, bh__epoch_ms(), random);
    if (status == BH_OK && bh__plan_action(self->work.plan) == BH_ACTION_NONE)
        return 0;
    if (status == BH_OK)
        status = record_plan(self, message);
    return status == BH_OK; /* otherwise a handler may succeed */
}

bh_status bh__decide_replay(bh__context *self, bh_message *message)
{
    bh_bytes random;
    bh_status status = read_for_plan(self, message, &random);
    if (status == BH_OK)
        status =
            bh_plan_replay(self->work.plan, self->work.delivery, self->work.history, self->settings->topology, random);
    return status == BH_OK ? record_plan(self, message) : status;
}
