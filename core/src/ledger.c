#include "ledger_entries.h"
#include "ledger_publishes.h"
#include "memory.h"
#include "policy_internal.h"

#include <stdlib.h>

enum {
    CONFIRM_TIMEOUT_MS = 30000,
    LONGEST_MS = 3600000,
    MOST_SENT = 512,
    MOST_LEFT = 1000,
    HIGHEST_MOST_LEFT = 1000000,
    LEFT_MS = 600000, /* below the shortest consumer timeout that a RabbitMQ came with, 15 minutes (3.8.15) */
};

/* ------------------------------------------------------------------------------------------------------- new and free */

bh_status bh_ledger_new(bh_ledger **out, const bh_policy *back_off, bh_bytes random)
{
    if (!out)
        return BH_ERR_ARGUMENT;
    *out = NULL;
    if (!back_off || !random.data || random.size != BH_LEDGER_RANDOM_BYTES)
        return BH_ERR_ARGUMENT;
    bh_ledger *self = calloc(1, sizeof *self);
    if (!self)
        return BH_ERR_NO_MEMORY;
    self->confirm_timeout_ms = CONFIRM_TIMEOUT_MS;
    self->most_sent = MOST_SENT;
    self->most_left = MOST_LEFT;
    self->left_ms = LEFT_MS;
    self->first_free = self->first_free_channel = BH__NO_SLOT;
    self->with_done = bh__ledger_empty_list();
    self->news = bh__ledger_empty_list();
    for (size_t i = 0; i < BH__PLACE_DONE; i++)
        self->places[i] = bh__ledger_empty_list();
    for (size_t i = 0; i < BH_LEDGER_RANDOM_BYTES; i++)
        self->random = self->random << 8 | (unsigned char)random.data[i];
    bh_status status = bh__policy_copy(&self->back_off, back_off);
    if (status != BH_OK) {
        bh_ledger_free(self);
        return status;
    }
    *out = self;
    return BH_OK;
}

void bh_ledger_free(bh_ledger *self)
{
    if (!self)
        return;
    for (size_t i = 0; i < BH_LEDGER_MOST_PUBLISHERS; i++) {
        free(self->publishers[i].pool);
        free(self->publishers[i].buckets);
    }
    free(self->channels);
    free(self->entries);
    free(self->heap);
    free(self->rungs);
    bh__report_free(&self->words);
    bh_policy_free(self->back_off);
    free(self);
}

/* --------------------------------------------------------------------------------------------------------- settings */

static int is_within(int64_t value, int64_t lowest, int64_t highest)
{
    return value >= lowest && value <= highest;
}

bh_status bh__ledger_set_back_off(bh_ledger *self, const bh_policy *back_off)
{
    bh_policy *copy;
    bh_status status = bh__policy_copy(&copy, back_off);
    if (status != BH_OK)
        return status;
    bh_policy_free(self->back_off);
    self->back_off = copy;
    return BH_OK;
}

bh_status bh_ledger_set_confirm_timeout_ms(bh_ledger *self, int64_t timeout_ms)
{
    if (!self || !is_within(timeout_ms, 1, LONGEST_MS))
        return BH_ERR_ARGUMENT;
    self->confirm_timeout_ms = timeout_ms;
    return BH_OK;
}

bh_status bh_ledger_set_most_sent(bh_ledger *self, int64_t most)
{
    if (!self || !is_within(most, 1, BH_LEDGER_MOST_SENT))
        return BH_ERR_ARGUMENT;
    self->most_sent = (size_t)most;
    return BH_OK;
}

bh_status bh_ledger_set_acks(bh_ledger *self, int64_t most, int64_t gap_ms)
{
    if (!self || !is_within(most, 0, BH_LEDGER_MOST_SENT) || !is_within(gap_ms, 0, LONGEST_MS))
        return BH_ERR_ARGUMENT;
    self->most_acks = (size_t)most;
    self->ack_gap_ms = gap_ms;
    return BH_OK;
}

bh_status bh_ledger_set_left(bh_ledger *self, int64_t most, int64_t for_ms)
{
    if (!self || !is_within(most, 0, HIGHEST_MOST_LEFT) || !is_within(for_ms, 1, LONGEST_MS))
        return BH_ERR_ARGUMENT;
    self->most_left = (size_t)most;
    self->left_ms = for_ms;
    return BH_OK;
}

/* ------------------------------------------------------------------------------------------------ the consuming side */

enum { CHANNEL_BITS = 16 }; /* of a channel's number: its index */

static bh__ledger_channel *find_channel(const bh_ledger *self, int64_t number)
{
    size_t at = (size_t)(number & ((1 << CHANNEL_BITS) - 1));
    return number > 0 && at < self->channel_count && self->channels[at].number == number ? &self->channels[at] : NULL;
}

/* The index of a channel that is not open; BH__NO_SLOT: no memory. */
static uint32_t free_channel(bh_ledger *self)
{
    void *channels = self->channels;
    uint32_t at = self->first_free_channel;
    if (at != BH__NO_SLOT) {
        self->first_free_channel = self->channels[at].links.behind;
        return at;
    }
    if (!bh__reserve(&channels, &self->channel_capacity, sizeof *self->channels, self->channel_count + 1))
        return BH__NO_SLOT;
    self->channels = channels;
    return (uint32_t)self->channel_count++;
}

bh_status bh_ledger_open_channel(bh_ledger *self, int64_t *out)
{
    if (!self || !out)
        return BH_ERR_ARGUMENT;
    *out = 0;
    if (self->first_free_channel == BH__NO_SLOT && self->channel_count == BH_LEDGER_MOST_CHANNELS)
        return BH_ERR_STATE;
    uint32_t at = free_channel(self);
    if (at == BH__NO_SLOT)
        return BH_ERR_NO_MEMORY;
    *out = ++self->last_number << CHANNEL_BITS | at;
    self->channels[at] = (bh__ledger_channel){.number = *out,
                                              .order = bh__ledger_empty_list(),
                                              .done = bh__ledger_empty_list(),
                                              .gap_ms = BH_LEDGER_NEVER,
                                              .is_whole = 1};
    return BH_OK;
}

int64_t bh_ledger_close_channel(bh_ledger *self, int64_t number)
{
    bh__ledger_channel *closed = self ? find_channel(self, number) : NULL;
    int64_t count = 0;
    if (!closed)
        return 0;
    for (; closed->order.first != BH__NO_SLOT; count++)
        bh__ledger_end_entry(self, closed->order.first, BH_STATE_GIVEN_BACK);
    closed->number = 0;
    closed->links.behind = self->first_free_channel;
    self->first_free_channel = (uint32_t)(closed - self->channels);
    return count;
}

bh_status bh_ledger_arrive(bh_ledger *self, int64_t number, int64_t delivery_tag, int64_t *out)
{
    if (!self || !out)
        return BH_ERR_ARGUMENT;
    *out = 0;
    bh__ledger_channel *on = find_channel(self, number);
    if (!on)
        return BH_ERR_STATE;
    if (delivery_tag < 1 || (self->most_acks && delivery_tag <= on->last_tag))
        return BH_ERR_ARGUMENT;
    uint32_t slot = bh__ledger_add_entry(self, on, delivery_tag);
    if (slot == BH__NO_SLOT)
        return BH_ERR_NO_MEMORY;
    on->is_whole &= delivery_tag == on->last_tag + 1;
    on->is_flushing = 0;
    on->last_tag = delivery_tag;
    *out = bh__ledger_entry_number(self, slot);
    return BH_OK;
}

/* A status for what is 0 where the state of the entry does not allow it. */
static bh_status state_status(int is_done)
{
    return is_done ? BH_OK : BH_ERR_STATE;
}

bh_status bh_ledger_take(bh_ledger *self, int64_t number)
{
    if (!self)
        return BH_ERR_ARGUMENT;
    return state_status(bh__ledger_happens(self, bh__ledger_find_entry(self, number), BH__IS_TAKEN));
}

static bh_status finish_entry(bh_ledger *self, uint32_t slot)
{
    return state_status(bh__ledger_take_back(self, slot) && bh__ledger_happens(self, slot, BH__IS_FINISHED));
}

static bh_status dismiss_entry(bh_ledger *self, uint32_t slot, bh_action action)
{
    return state_status(bh__ledger_take_back(self, slot) && bh__ledger_dismiss_entry(self, slot, action));
}

bh_status bh_ledger_acknowledge(bh_ledger *self, int64_t number)
{
    return self ? finish_entry(self, bh__ledger_find_entry(self, number)) : BH_ERR_ARGUMENT;
}

bh_status bh_ledger_give_back(bh_ledger *self, int64_t number)
{
    return self ? dismiss_entry(self, bh__ledger_find_entry(self, number), BH_ACTION_NONE) : BH_ERR_ARGUMENT;
}

bh_status bh_ledger_settle(bh_ledger *self, int64_t number, bh_action action, int64_t rung_ms, bh_bytes id,
                           bh_bytes exchange, bh_bytes routing_key)
{
    if (!self || rung_ms < 0 || !id.data || !exchange.data || !routing_key.data)
        return BH_ERR_ARGUMENT;
    uint32_t slot = bh__ledger_find_entry(self, number);
    switch (action) {
    case BH_ACTION_ACK:
    case BH_ACTION_DROP:
        return finish_entry(self, slot);
    case BH_ACTION_REJECT:
    case BH_ACTION_RETURN:
        return dismiss_entry(self, slot, action);
    case BH_ACTION_RETRY:
    case BH_ACTION_PARK:
    case BH_ACTION_REPLAY:
        if (slot == BH__NO_SLOT)
            return BH_ERR_STATE;
        if (!bh__ledger_know_rung(self, rung_ms))
            return BH_ERR_NO_MEMORY;
        if (!bh__ledger_take_back(self, slot) || !bh__ledger_happens(self, slot, BH__NEEDS_COPY))
            return BH_ERR_STATE;
        self->entries[slot].action = (unsigned char)action;
        self->entries[slot].rung_ms = rung_ms;
        self->entries[slot].print = bh__ledger_copy_print(id, exchange, routing_key);
        return BH_OK;
    case BH_ACTION_NONE:
        break;
    }
    return BH_ERR_ARGUMENT;
}

bh_status bh_ledger_leave(bh_ledger *self, int64_t number, int64_t now_ms)
{
    if (!self || now_ms < 0)
        return BH_ERR_ARGUMENT;
    uint32_t slot = bh__ledger_find_entry(self, number);
    return state_status(bh__ledger_take_back(self, slot) && bh__ledger_leave_entry(self, slot, now_ms));
}

bh_status bh_ledger_postpone(bh_ledger *self, int64_t number, int64_t now_ms)
{
    if (!self || now_ms < 0)
        return BH_ERR_ARGUMENT;
    uint32_t slot = bh__ledger_find_entry(self, number);
    return state_status(bh__ledger_take_back(self, slot) && bh__ledger_put_off_copy(self, slot, now_ms));
}

void bh_ledger_flush(bh_ledger *self)
{
    for (size_t i = 0; self && i < self->channel_count; i++)
        self->channels[i].is_flushing = 1;
}

/* ----------------------------------------------------------------------------------------------------------- getters */

bh_step bh_ledger_step(const bh_ledger *self)
{
    return self ? self->step.kind : BH_STEP_REST;
}

int64_t bh_ledger_step_entry(const bh_ledger *self)
{
    return self ? self->step.entry : 0;
}

int64_t bh_ledger_step_channel(const bh_ledger *self)
{
    return self ? self->step.channel : 0;
}

int64_t bh_ledger_step_publisher(const bh_ledger *self)
{
    return self ? self->step.publisher : 0;
}

int64_t bh_ledger_step_tag(const bh_ledger *self)
{
    return self ? self->step.tag : 0;
}

int bh_ledger_step_multiple(const bh_ledger *self)
{
    return self && self->step.multiple;
}

bh_event_kind bh_ledger_step_event(const bh_ledger *self)
{
    return self ? self->step.event : BH_EVENT_LAST;
}

bh_status bh_ledger_step_status(const bh_ledger *self)
{
    return self ? self->step.status : BH_OK;
}

int64_t bh_ledger_step_delay_ms(const bh_ledger *self)
{
    return self ? self->step.delay_ms : 0;
}

int64_t bh_ledger_step_count(const bh_ledger *self)
{
    return self ? self->step.count : 0;
}

bh_state bh_ledger_state(const bh_ledger *self, int64_t number)
{
    uint32_t slot = self ? bh__ledger_find_entry(self, number) : BH__NO_SLOT;
    return slot == BH__NO_SLOT ? BH_STATE_NONE : (bh_state)self->entries[slot].state;
}

int64_t bh_ledger_count(const bh_ledger *self, bh_state state)
{
    return self && (int)state > BH_STATE_NONE && state < BH_STATE_LAST ? self->counts[state] : 0;
}

int64_t bh_ledger_copies(const bh_ledger *self)
{
    return self ? self->counts[BH_STATE_DUE] + self->counts[BH_STATE_SENT] + self->counts[BH_STATE_WAITING] : 0;
}

int64_t bh_ledger_unsettled(const bh_ledger *self)
{
    return self ? self->counts[BH_STATE_ARRIVED] + self->counts[BH_STATE_TAKEN] + bh_ledger_copies(self) : 0;
}

int bh_ledger_is_full(const bh_ledger *self)
{
    return self && self->counts[BH_STATE_LEFT] > (int64_t)self->most_left;
}
