#include "engine/decision.h"

#include "memory.h"
#include "plan_internal.h"
#include "wire/content.h"

#include <stdlib.h>

enum { KEPT = 7 /* a copy's strings, a zero byte behind each */ };

bh_status bh__read(const bh__settings *settings, const bh_message *message, bh_delivery *delivery, bh_history *history)
{
    bh_status status = bh__content_read(delivery, message->exchange, message->routing_key, message->properties);
    if (status == BH_OK && history)
        status = bh_history_read(history, delivery, settings->topology);
    return status;
}

bh_bytes bh__id_of(bh__context *self, const bh_message *message)
{
    return bh__read(self->settings, message, self->delivery, self->history) == BH_OK ? bh_history_id(self->history)
                                                                                     : bh_str("");
}

/* What a plan on these connections needs beside the message. */
static bh_status prepare_plan(bh__context *self, bh_bytes *random)
{
    size_t frame_max = self->consume.link.frame_max < self->publish.link.frame_max ? self->consume.link.frame_max
                                                                                   : self->publish.link.frame_max;
    *random = (bh_bytes){bh__draw(self, BH_PLAN_RANDOM_BYTES), BH_PLAN_RANDOM_BYTES};
    bh_status status = bh_plan_set_frame_max(self->plan, (int64_t)frame_max);
    return status == BH_OK && !random->data ? BH_ERR_STATE : status;
}

/* Reads the message into the context's own objects, and the rest. */
static bh_status read_for_plan(bh__context *self, const bh_message *message, bh_bytes *random)
{
    bh_status status = bh__read(self->settings, message, self->delivery, self->history);
    return status == BH_OK ? prepare_plan(self, random) : status;
}

/* ----------------------------------------------------------------------------------------------------------- the copy */

/* Writes property flags and list of the plan's copy. BH_ERR_FRAME where they fit no frame of the publish connection. */
static bh_status write_properties(bh__context *self, const bh_message *message, bh_bytes *out)
{
    bh__buffer *scratch = &self->scratch;
    *out = bh_str("");
    if (!bh_plan_publishes(self->plan))
        return BH_OK;
    bh__buffer_clear(scratch);
    bh_status status = bh__content_copy(scratch, self->plan, message->properties);
    *out = (bh_bytes){scratch->data ? scratch->data : "", bh__buffer_size(scratch)};
    return status == BH_OK && out->size > bh__link_header_room(&self->publish.link) ? BH_ERR_FRAME : status;
}

static bh__copy *make_copy(const bh__context *self, bh_bytes properties)
{
    const bh_plan *plan = self->plan;
    bh_bytes exchange = bh_plan_exchange(plan), routing_key = bh_plan_routing_key(plan);
    bh_bytes reason = bh_plan_reason(plan), id = bh__content_string(properties, "backhop-id");
    bh_bytes queue = bh_relay_queue(self->settings->relay);
    if (id.size == 0)
        id = bh_history_id(self->history);
    int tells_error = bh__wants(self, bh_event_of_copy(bh_plan_action(plan)));
    bh_bytes error = tells_error ? bh__plan_error(plan) : bh_str("");
    bh__copy *copy = malloc(sizeof *copy + exchange.size + routing_key.size + properties.size + reason.size + id.size +
                            queue.size + error.size + KEPT);
    if (!copy)
        return NULL;
    char *at = copy->data;
    *copy = (bh__copy){.action = bh_plan_action(plan),
                       .mandatory = bh_plan_mandatory(plan),
                       .attempts = bh_plan_attempts(plan),
                       .delay_ms = bh_plan_delay_ms(plan)};
    copy->exchange = bh__keep(&at, exchange);
    copy->routing_key = bh__keep(&at, routing_key);
    copy->properties = bh__keep(&at, properties);
    copy->reason = bh__keep(&at, reason);
    copy->id = bh__keep(&at, id);
    copy->queue = bh__keep(&at, queue);
    copy->error = bh__keep(&at, error);
    return copy;
}

/* Enters the plan in the ledger, and the copy in the message. */
static bh_status carry_out(bh__context *self, bh_message *message)
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
    int64_t rung_ms = bh_mode_makes_rungs((bh_mode)self->settings->mode) ? bh_plan_rung_ms(self->plan) : 0;
    return bh_ledger_settle(self->ledger, message->entry, copy->action, rung_ms, copy->id, copy->exchange,
                            copy->routing_key);
}

/* --------------------------------------------------------------------------------------------------------- decisions */

void bh__refuse(bh__context *self, bh_message *message, bh_status status, bh_bytes text)
{
    if (bh_ledger_leave(self->ledger, message->entry, bh__monotonic_ms()) == BH_OK) {
        self->left_count++;
        bh__tell(self, (bh__news){.kind = BH_EVENT_REFUSED,
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
        status = bh_plan_set_traceparent(self->plan, bh_str(message->traceparent));
    if (status == BH_OK)
        status = bh_plan_make(self->plan, self->delivery, self->history,
                              message->policy ? message->policy : self->settings->policy, self->settings->topology,
                              message->outcome, error, message->retry_after_ms, bh__epoch_ms(), random);
    return status == BH_OK ? carry_out(self, message) : status;
}

/* Where the work queue of the dead letter that was read is. */
static bh__whereabouts find_place(bh__context *self)
{
    const bh_relay *relay = self->settings->relay;
    return bh_relay_is_served(relay) ? bh__places_find(&self->places, bh_relay_queue(relay), bh__monotonic_ms())
                                     : BH__MISSING;
}

static bh_status carry_out_dead_letter(bh__context *self, bh_message *message)
{
    if (bh_plan_action(self->plan) != BH_ACTION_DROP)
        return carry_out(self, message);
    bh__tell(self, (bh__news){.kind = BH_EVENT_DROPPED,
                              .queue = bh_relay_queue(self->settings->relay),
                              .message = message,
                              .history = self->history});
    bh_ledger_acknowledge(self->ledger, message->entry);
    bh__release(self, message->entry);
    return BH_OK;
}

static bh_status decide_dead_letter(bh__context *self, bh_message *message, bh__whereabouts *place)
{
    bh_relay *relay = self->settings->relay;
    bh_bytes random;
    bh_status status = bh__content_read(self->delivery, message->exchange, message->routing_key, message->properties);
    if (status == BH_OK)
        status = bh_relay_read(relay, self->delivery, self->history);
    *place = status == BH_OK ? find_place(self) : BH__MISSING;
    if (*place == BH__UNSEEN)
        return BH_OK;
    if (status == BH_OK)
        status = prepare_plan(self, &random);
    if (status == BH_OK)
        status = bh_relay_plan(relay, self->plan, self->delivery, self->history, *place == BH__THERE, bh__epoch_ms(),
                               random);
    return status == BH_OK ? carry_out_dead_letter(self, message) : status;
}

/* It could not be decided on now: another time. */
static void try_again_later(bh__context *self, const bh_message *message, bh_status status)
{
    bh_bytes text = status == BH_ERR_STATE ? bh_str("the system gives no random bytes; the message is settled later")
                                           : bh_str("there is no memory for a copy; the message is settled later");
    if (bh_ledger_postpone(self->ledger, message->entry, bh__monotonic_ms()) == BH_OK)
        bh__tell(self, (bh__news){.kind = BH_EVENT_UNAVAILABLE, .status = status, .text = text, .count = 1});
}

static void tell_stale(bh__context *self, const bh_message *message)
{
    bh__tell(self, (bh__news){.kind = BH_EVENT_STALE, .id = bh__id_of(self, message), .message = message, .count = 1});
}

/* After a decision: where it was none, tries again or gives up. */
static void end_decision(bh__context *self, bh_message *message, bh_status status)
{
    if (status == BH_ERR_NO_MEMORY || status == BH_ERR_STATE)
        try_again_later(self, message, status);
    else if (status != BH_OK)
        bh__refuse(self, message, status,
                   status == BH_ERR_CONTENT ? bh_str("the message's properties are malformed")
                                            : bh_status_text(status));
}

int bh__relay(bh__context *self, bh_message *message)
{
    bh__whereabouts place = BH__MISSING;
    if (bh__held(self, message->entry) != message) /* its channel is gone: the broker delivers it again */
        return 1;
    bh_status status = decide_dead_letter(self, message, &place);
    if (place == BH__UNSEEN)
        return 0;
    end_decision(self, message, status);
    return 1;
}

/* A dead letter that could not be decided on before, and whose queue is known by now, or is being looked for. */
static void relay_again(bh__context *self, bh_message *message)
{
    if (!bh__relay(self, message))
        try_again_later(self, message, BH_ERR_STATE);
}

/* What its handler did, where anybody wants to know. */
static void tell_handled(bh__context *self, bh_message *message)
{
    bh_event_kind kind = bh_event_of(message->outcome);
    if (message->is_told || !bh__wants(self, kind) ||
        bh__read(self->settings, message, self->delivery, self->history) != BH_OK)
        return;
    message->is_told = 1;
    bh__tell(self,
             (bh__news){.kind = kind, .duration_us = message->taken_us, .message = message, .history = self->history});
}

void bh__settle(bh__context *self, bh_message *message)
{
    if (bh__held(self, message->entry) != message) { /* its entry can be another's, in another run */
        tell_stale(self, message);
        return;
    }
    if (self->settings->relay) {
        relay_again(self, message);
        return;
    }
    if (!message->is_guarded)
        tell_handled(self, message);
    if (message->outcome == BH_OUTCOME_OK || message->outcome == BH_OUTCOME_DROPPED) {
        bh_ledger_acknowledge(self->ledger, message->entry); /* as the plan says of these, whatever the headers hold */
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
        status = bh_plan_guard(self->plan, self->delivery, self->history, self->settings->policy,
                               self->settings->topology, bh__epoch_ms(), random);
    if (status == BH_OK && bh_plan_action(self->plan) == BH_ACTION_NONE)
        return 0;
    if (status == BH_OK)
        status = carry_out(self, message);
    return status == BH_OK; /* else a handler may do better */
}

bh_status bh__decide_replay(bh__context *self, bh_message *message)
{
    bh_bytes random;
    bh_status status = read_for_plan(self, message, &random);
    if (status == BH_OK)
        status = bh_plan_replay(self->plan, self->delivery, self->history, self->settings->topology, random);
    return status == BH_OK ? carry_out(self, message) : status;
}
