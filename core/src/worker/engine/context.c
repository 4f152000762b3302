#include "worker/engine/context.h"

#include "worker/engine/pacing.h"
#include "events/internal.h"
#include "ledger/internal.h"
#include "base/memory.h"
#include "topology/internal.h"

#include <backhop/adapter/event.h>
#include <stdio.h>
#include <stdlib.h>

bh_status bh__context_init(bh__context *self, const bh_worker *worker, const bh__settings *settings,
                           bh__mailbox *mailbox)
{
    self->worker = worker;
    self->settings = settings;
    self->mailbox = mailbox;
    self->consume.role = "consume";
    self->publish.role = "publish";
    self->random.used = sizeof self->random.bytes;
    bh__link_init(&self->consume.link);
    bh__link_init(&self->publish.link);
    bh_status status = bh_delivery_new(&self->work.delivery);
    if (status == BH_OK)
        status = bh_history_new(&self->work.history);
    if (status == BH_OK)
        status = bh_plan_new(&self->work.plan);
    return status;
}

static void release_all(bh__context *self)
{
    for (size_t i = 0; i < self->in_hand.capacity; i++) {
        bh_message_free(self->in_hand.items[i]);
        self->in_hand.items[i] = NULL;
    }
}

void bh__context_free(bh__context *self)
{
    release_all(self);
    free(self->in_hand.items);
    bh__work_queues_free(&self->work_queues);
    bh_ledger_free(self->ledger);
    bh__buffer_free(&self->work.properties);
    bh__link_free(&self->consume.link);
    bh__link_free(&self->publish.link);
    bh_delivery_free(self->work.delivery);
    bh_history_free(self->work.history);
    bh_plan_free(self->work.plan);
}

static int64_t part_of(int64_t whole, int64_t part)
{
    return whole < part ? 1 : whole / part;
}

bh_status bh__context_begin(bh__context *self)
{
    const bh__settings *settings = self->settings;
    bh_bytes random = {bh__draw(self, BH_LEDGER_RANDOM_BYTES), BH_LEDGER_RANDOM_BYTES};
    if (!random.data)
        return BH_ERR_STATE;
    const char *key = bh__draw(self, sizeof self->key);
    if (!key)
        return BH_ERR_STATE;
    memcpy(&self->key, key, sizeof self->key);
    release_all(self); /* orphans of the last run */
    bh_ledger_free(self->ledger);
    bh_status status = bh_ledger_new(&self->ledger, settings->back_off, random);
    if (status == BH_OK)
        status = bh_ledger_set_confirm_timeout_ms(self->ledger, settings->confirm_timeout_ms);
    if (status == BH_OK)
        status = bh__ledger_set_acks(self->ledger, part_of(settings->prefetch, BH__GAP_OF_PREFETCH), BH__GAP_MS);
    if (status == BH_OK)
        bh__ledger_set_orphans(self->ledger, BH__MOST_ORPHANS, BH__ORPHAN_MS);
    return status;
}

int bh__is_at_least_4_3(const bh__context *self)
{
    return bh__broker_version(bh_str(self->consume.link.version)) >= 40003;
}

/* ------------------------------------------------------------------------ time and random bytes */

const char *bh__draw(bh__context *self, size_t size)
{
    if (sizeof self->random.bytes - self->random.used < size) {
        if (!bh__random(self->random.bytes, sizeof self->random.bytes))
            return NULL;
        self->random.used = 0;
    }
    const char *drawn = self->random.bytes + self->random.used;
    self->random.used += size;
    return drawn;
}

int64_t bh__note_failure(bh__context *self, bh__back_off *state)
{
    const char *drawn = bh__draw(self, 8);
    return bh__back_off_fail(state, self->settings->back_off, drawn ? bh__random_number(drawn) : 0.5,
                             bh__monotonic_ms());
}

/* --------------------------------------------------------------------------------------- events */

static void set_string(bh_event *event, bh_field field, bh_bytes value)
{
    if (value.data && value.size)
        bh_event_set_string(event, field, value); /* without memory the event has no such field */
}

static void set_int(bh_event *event, bh_field field, int64_t value)
{
    if (value)
        bh_event_set_int(event, field, value);
}

static int has_error(bh_event_kind kind)
{
    return kind == BH_EVENT_FAILED || kind == BH_EVENT_THROTTLED || kind == BH_EVENT_DROPPED ||
           kind == BH_EVENT_RETRIED || kind == BH_EVENT_DEFERRED || kind == BH_EVENT_PARKED;
}

/* Adds the history of the event's message, if it was read, and the error of its handler. */
static void set_message(bh_event *event, const bh__event_data *data)
{
    const bh_message *message = data->message;
    if (data->history)
        bh_event_set_history(event, data->history, message && message->redelivered, bh__epoch_ms());
    if (!message || !has_error(data->kind))
        return;
    set_string(event, BH_FIELD_ERROR_CLASS, (bh_bytes){message->error_class, message->error_class_size});
    set_string(event, BH_FIELD_ERROR, (bh_bytes){message->error, message->error ? message->error_size : 0});
}

/* Makes the event. NULL: no memory. */
static bh_event *make_event(const bh__context *self, const bh__event_data *data)
{
    bh_event *event;
    char host[300] = "";
    const bh__connection *connection = data->connection;
    if (bh_event_new(&event, data->kind) != BH_OK)
        return NULL;
    if (connection && connection->uri)
        snprintf(host, sizeof host, "%s:%d", connection->uri->host, connection->uri->port);
    event->message = data->message ? data->message->entry : 0;
    set_string(event, BH_FIELD_QUEUE, data->queue.size ? data->queue : bh__topology_queue(self->settings->topology));
    set_string(event, BH_FIELD_TEXT, data->text);
    set_string(event, BH_FIELD_ID, data->id);
    set_string(event, BH_FIELD_REASON, data->reason);
    set_string(event, BH_FIELD_CONNECTION, bh_str(connection ? connection->role : ""));
    set_string(event, BH_FIELD_HOST, bh_str(host));
    set_message(event, data);
    set_string(event, BH_FIELD_ERROR, data->error);
    set_int(event, BH_FIELD_STATUS, data->status);
    set_int(event, BH_FIELD_DURATION, data->duration_us);
    if (data->attempts || data->kind == BH_EVENT_PARKED)
        bh_event_set_int(event, BH_FIELD_ATTEMPTS, data->attempts);
    set_int(event, BH_FIELD_DEFERRALS, data->deferrals);
    set_int(event, BH_FIELD_DELAY, data->delay_ms);
    set_int(event, BH_FIELD_COUNT, data->count);
    if (data->flow)
        bh_flow_describe(data->flow, event);
    if (data->cause.data)
        bh_event_set_cause(event, data->cause); /* without memory the event has no such field */
    return event;
}

int bh__is_observed(const bh__context *self, bh_event_kind kind)
{
    return self->mailbox->metrics || self->settings->emitted >> kind & 1;
}

static void emit(const bh__context *self, const bh__event_data *data, int is_last)
{
    if (!bh__is_observed(self, data->kind) && !bh__health_concerns(data->kind) && !is_last)
        return;
    bh_event *event = make_event(self, data);
    bh__mailbox_count(self->mailbox, event);
    if (event && bh__health_concerns(data->kind))
        bh__mailbox_observe(self->mailbox, event);
    if (is_last || self->settings->emitted >> data->kind & 1)
        bh__mailbox_push_event(self->mailbox, event, is_last);
    else
        bh_event_free(event);
}

void bh__emit(const bh__context *self, bh__event_data data)
{
    emit(self, &data, 0);
}

void bh__emit_last(const bh__context *self, bh__event_data data)
{
    emit(self, &data, 1);
}

/* ------------------------------------------------------------------------- the messages in hand */

int bh__add_in_hand(bh__context *self, bh_message *message)
{
    size_t index = bh__ledger_index(message->entry);
    size_t before = self->in_hand.capacity;
    void *messages = self->in_hand.items;
    if (!bh__reserve(&messages, &self->in_hand.capacity, sizeof(bh_message *), index + 1))
        return 0;
    self->in_hand.items = messages;
    for (size_t i = before; i < self->in_hand.capacity; i++)
        self->in_hand.items[i] = NULL;
    if (self->in_hand.items[index]) /* an orphan that ended */
        bh__release(self, self->in_hand.items[index]->entry);
    self->in_hand.items[index] = message;
    return 1;
}

bh_message *bh__find_in_hand(const bh__context *self, int64_t entry)
{
    size_t index = bh__ledger_index(entry);
    bh_message *message = index < self->in_hand.capacity ? self->in_hand.items[index] : NULL;
    return message && message->entry == entry ? message : NULL;
}

void bh__release(bh__context *self, int64_t entry)
{
    bh_message *message = bh__find_in_hand(self, entry);
    if (!message)
        return;
    self->in_hand.items[bh__ledger_index(entry)] = NULL;
    self->guard.count -= message->is_guarded;
    bh_message_free(message);
}

int64_t bh__release_channel(bh__context *self, int64_t channel)
{
    for (size_t i = 0; i < self->in_hand.capacity; i++)
        if (self->in_hand.items[i] && self->in_hand.items[i]->channel == channel)
            bh__ledger_take(self->ledger, self->in_hand.items[i]->entry); /* callers have all that were not withdrawn */
    int64_t count = bh_ledger_close_channel(self->ledger, channel);
    for (size_t i = 0; i < self->in_hand.capacity; i++)
        if (self->in_hand.items[i] && self->in_hand.items[i]->channel == channel &&
            !bh__ledger_is_orphan(self->ledger, self->in_hand.items[i]->entry))
            bh__release(self, self->in_hand.items[i]->entry);
    return count;
}
