#include "engine/context.h"

#include "engine/pacing.h"
#include "event_internal.h"
#include "ledger_internal.h"
#include "memory.h"
#include "topology_internal.h"

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
    self->random_used = sizeof self->random;
    bh__link_init(&self->consume.link);
    bh__link_init(&self->publish.link);
    bh_status status = bh_delivery_new(&self->delivery);
    if (status == BH_OK)
        status = bh_history_new(&self->history);
    if (status == BH_OK)
        status = bh_plan_new(&self->plan);
    return status;
}

void bh__context_free(bh__context *self)
{
    for (size_t i = 0; i < self->message_capacity; i++)
        bh_message_free(self->messages[i]);
    free(self->messages);
    bh__places_free(&self->places);
    bh_ledger_free(self->ledger);
    bh__buffer_free(&self->scratch);
    bh__link_free(&self->consume.link);
    bh__link_free(&self->publish.link);
    bh_delivery_free(self->delivery);
    bh_history_free(self->history);
    bh_plan_free(self->plan);
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
    bh_ledger_free(self->ledger);
    bh_status status = bh_ledger_new(&self->ledger, settings->back_off, random);
    if (status == BH_OK)
        status = bh_ledger_set_confirm_timeout_ms(self->ledger, settings->confirm_timeout_ms);
    if (status == BH_OK)
        status = bh_ledger_set_acks(self->ledger, part_of(settings->prefetch, BH__GAP_OF_PREFETCH), BH__GAP_MS);
    return status;
}

int bh__is_at_least_4_3(const bh__context *self)
{
    return bh__broker_version(bh_str(self->consume.link.version)) >= 40003;
}

/* ------------------------------------------------------------------------------------------------ time and random bytes */

const char *bh__draw(bh__context *self, size_t size)
{
    if (sizeof self->random - self->random_used < size) {
        if (!bh__random(self->random, sizeof self->random))
            return NULL;
        self->random_used = 0;
    }
    const char *drawn = self->random + self->random_used;
    self->random_used += size;
    return drawn;
}

int64_t bh__note_failure(bh__context *self, bh__back_off *state)
{
    const char *drawn = bh__draw(self, 8);
    state->failures++;
    state->wait_ms = bh_policy_delay_ms(self->settings->back_off, state->failures, state->wait_ms,
                                        drawn ? bh__random_number(drawn) : 0.5);
    state->due_ms = bh__monotonic_ms() + state->wait_ms;
    return state->wait_ms;
}

/* ----------------------------------------------------------------------------------------------------------- telling */

static void set_string(bh_event *event, bh_field field, bh_bytes value)
{
    if (value.data && value.size)
        bh_event_set_string(event, field, value); /* without memory it is told without */
}

static void set_int(bh_event *event, bh_field field, int64_t value)
{
    if (value)
        bh_event_set_int(event, field, value);
}

static int tells_error(bh_event_kind kind)
{
    return kind == BH_EVENT_FAILED || kind == BH_EVENT_DROPPED || kind == BH_EVENT_RETRIED || kind == BH_EVENT_PARKED;
}

/* What is known of a message: its history, where it was just read; its handler's error. */
static void set_message(bh_event *event, const bh__news *news)
{
    const bh_message *message = news->message;
    if (news->history)
        bh_event_set_history(event, news->history, message && message->redelivered, bh__epoch_ms());
    if (!message || !tells_error(news->kind))
        return;
    set_string(event, BH_FIELD_ERROR_CLASS, bh_str(message->error_class ? message->error_class : ""));
    set_string(event, BH_FIELD_ERROR, (bh_bytes){message->error, message->error ? message->error_size : 0});
}

/* NULL: no memory. */
static bh_event *make_event(const bh__context *self, const bh__news *news)
{
    bh_event *event;
    char host[300] = "";
    const bh__connection *connection = news->connection;
    if (bh_event_new(&event, news->kind) != BH_OK)
        return NULL;
    if (connection && connection->uri)
        snprintf(host, sizeof host, "%s:%d", connection->uri->host, connection->uri->port);
    event->message = news->message ? news->message->entry : 0;
    set_string(event, BH_FIELD_QUEUE, news->queue.size ? news->queue : bh_topology_queue(self->settings->topology));
    set_string(event, BH_FIELD_TEXT, news->text);
    set_string(event, BH_FIELD_ID, news->id);
    set_string(event, BH_FIELD_REASON, news->reason);
    set_string(event, BH_FIELD_CONNECTION, bh_str(connection ? connection->role : ""));
    set_string(event, BH_FIELD_HOST, bh_str(host));
    set_message(event, news);
    set_string(event, BH_FIELD_ERROR, news->error);
    set_int(event, BH_FIELD_STATUS, news->status);
    set_int(event, BH_FIELD_DURATION, news->duration_us);
    if (news->attempts || news->kind == BH_EVENT_PARKED)
        bh_event_set_int(event, BH_FIELD_ATTEMPTS, news->attempts);
    set_int(event, BH_FIELD_DELAY, news->delay_ms);
    set_int(event, BH_FIELD_COUNT, news->count);
    if (news->cause.data)
        bh_event_set_cause(event, news->cause); /* without memory it is told without */
    return event;
}

int bh__wants(const bh__context *self, bh_event_kind kind)
{
    return self->mailbox->metrics || self->settings->told >> kind & 1;
}

static void tell(const bh__context *self, const bh__news *news, int is_last)
{
    if (!bh__wants(self, news->kind) && !is_last)
        return;
    bh_event *event = make_event(self, news);
    bh__mailbox_count(self->mailbox, event);
    if (is_last || self->settings->told >> news->kind & 1)
        bh__mailbox_tell(self->mailbox, event, is_last);
    else
        bh_event_free(event);
}

void bh__tell(const bh__context *self, bh__news news)
{
    tell(self, &news, 0);
}

void bh__tell_last(const bh__context *self, bh__news news)
{
    tell(self, &news, 1);
}

/* ---------------------------------------------------------------------------------------------- the messages in hand */

int bh__hold(bh__context *self, bh_message *message)
{
    size_t slot = bh__ledger_slot(message->entry);
    size_t before = self->message_capacity;
    void *messages = self->messages;
    if (!bh__reserve(&messages, &self->message_capacity, sizeof(bh_message *), slot + 1))
        return 0;
    self->messages = messages;
    for (size_t i = before; i < self->message_capacity; i++)
        self->messages[i] = NULL;
    self->messages[slot] = message;
    return 1;
}

bh_message *bh__held(const bh__context *self, int64_t entry)
{
    size_t slot = bh__ledger_slot(entry);
    bh_message *message = slot < self->message_capacity ? self->messages[slot] : NULL;
    return message && message->entry == entry ? message : NULL;
}

void bh__release(bh__context *self, int64_t entry)
{
    bh_message *message = bh__held(self, entry);
    if (!message)
        return;
    self->messages[bh__ledger_slot(entry)] = NULL;
    self->guarded_count -= message->is_guarded;
    bh_message_free(message);
}

int64_t bh__release_channel(bh__context *self, int64_t channel)
{
    for (size_t i = 0; i < self->message_capacity; i++)
        if (self->messages[i] && self->messages[i]->channel == channel)
            bh__release(self, self->messages[i]->entry);
    return bh_ledger_close_channel(self->ledger, channel);
}
