#include "ledger/entries.h"
#include "ledger/orphans.h"
#include "ledger/publishes.h"
#include "base/memory.h"
#include "policy/internal.h"

#include <stdlib.h>

enum {
    CONFIRM_TIMEOUT_MS = 30000,
    LONGEST_MS = 3600000,
    MOST_SENT = 512,
    MOST_ABANDONED = 1000,
    HIGHEST_MOST_ABANDONED = 1000000,
    ABANDON_MS = 600000, /* below the shortest default consumer timeout: 15 minutes in 3.8.15 */
};

/* ------------------------------------------------------------------------- the default back-off */

enum { BACK_OFF_INITIAL_MS = 100, BACK_OFF_MAX_MS = 10000 };

bh_status bh_back_off_new(bh_policy **out)
{
    bh_policy_settings settings;
    bh_policy_defaults(&settings);
    settings.initial_ms = BACK_OFF_INITIAL_MS;
    settings.max_ms = BACK_OFF_MAX_MS;
    settings.jitter = BH_JITTER_EQUAL;
    bh_status status = bh_policy_new(out);
    if (status == BH_OK && (status = bh_policy_set(*out, &settings)) != BH_OK) {
        bh_policy_free(*out);
        *out = NULL;
    }
    return status;
}

/* --------------------------------------------------------------------------------- new and free */

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
    self->most_abandoned = MOST_ABANDONED;
    self->abandon_ms = ABANDON_MS;
    self->first_free = self->first_free_channel = BH__NO_INDEX;
    self->with_done = bh__ledger_empty_list();
    self->events = bh__ledger_empty_list();
    self->orphans = bh__ledger_empty_list();
    self->lost = bh__ledger_empty_list();
    for (size_t i = 0; i < BH__GROUP_DONE; i++)
        self->groups[i] = bh__ledger_empty_list();
    self->random = bh__seed(random.data);
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
    bh__report_free(&self->text);
    bh_policy_free(self->back_off);
    free(self);
}

/* ------------------------------------------------------------------------------------- settings */

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

bh_status bh__ledger_set_most_sent(bh_ledger *self, int64_t most)
{
    if (!self || !is_within(most, 1, BH__LEDGER_MOST_SENT))
        return BH_ERR_ARGUMENT;
    self->most_sent = (size_t)most;
    return BH_OK;
}

bh_status bh__ledger_set_acks(bh_ledger *self, int64_t most, int64_t gap_ms)
{
    if (!self || !is_within(most, 0, BH__LEDGER_MOST_SENT) || !is_within(gap_ms, 0, LONGEST_MS))
        return BH_ERR_ARGUMENT;
    self->most_acks = (size_t)most;
    self->ack_gap_ms = gap_ms;
    return BH_OK;
}

bh_status bh__ledger_set_abandoned(bh_ledger *self, int64_t most, int64_t for_ms)
{
    if (!self || !is_within(most, 0, HIGHEST_MOST_ABANDONED) || !is_within(for_ms, 1, LONGEST_MS))
        return BH_ERR_ARGUMENT;
    self->most_abandoned = (size_t)most;
    self->abandon_ms = for_ms;
    return BH_OK;
}

/* --------------------------------------------------------------------------- the consuming side */

enum { CHANNEL_BITS = 16 }; /* of a channel's number, for its index */

static bh__ledger_channel *find_channel(const bh_ledger *self, int64_t number)
{
    size_t at = (size_t)(number & ((1 << CHANNEL_BITS) - 1));
    return number > 0 && at < self->channel_count && self->channels[at].number == number ? &self->channels[at] : NULL;
}

/* Returns a free row for a channel. BH__NO_INDEX: no memory. */
static uint32_t free_channel(bh_ledger *self)
{
    void *channels = self->channels;
    uint32_t at = self->first_free_channel;
    if (at != BH__NO_INDEX) {
        self->first_free_channel = self->channels[at].links.next;
        return at;
    }
    if (!bh__reserve(&channels, &self->channel_capacity, sizeof *self->channels, self->channel_count + 1))
        return BH__NO_INDEX;
    self->channels = channels;
    return (uint32_t)self->channel_count++;
}

bh_status bh_ledger_open_channel(bh_ledger *self, int64_t *out)
{
    if (!self || !out)
        return BH_ERR_ARGUMENT;
    *out = 0;
    if (self->first_free_channel == BH__NO_INDEX && self->channel_count == BH_LEDGER_MOST_CHANNELS)
        return BH_ERR_STATE;
    uint32_t at = free_channel(self);
    if (at == BH__NO_INDEX)
        return BH_ERR_NO_MEMORY;
    *out = ++self->last_number << CHANNEL_BITS | at;
    self->channels[at] = (bh__ledger_channel){.number = *out,
                                              .order = bh__ledger_empty_list(),
                                              .done = bh__ledger_empty_list(),
                                              .gap_ms = BH_LEDGER_NEVER,
                                              .is_complete = 1};
    return BH_OK;
}

/* Removes a channel, and ends each of its entries by `end_entry`. Returns their number. */
static int64_t remove_channel(bh_ledger *self, int64_t number, void (*end_entry)(bh_ledger *, uint32_t))
{
    bh__ledger_channel *closed = self ? find_channel(self, number) : NULL;
    int64_t count = 0;
    if (!closed)
        return 0;
    for (; closed->order.first != BH__NO_INDEX; count++)
        end_entry(self, closed->order.first);
    closed->number = 0;
    closed->links.next = self->first_free_channel;
    self->first_free_channel = (uint32_t)(closed - self->channels);
    return count;
}

int64_t bh_ledger_close_channel(bh_ledger *self, int64_t number)
{
    return remove_channel(self, number, bh__ledger_close_entry);
}

int64_t bh_ledger_lose_channel(bh_ledger *self, int64_t number)
{
    return remove_channel(self, number, bh__ledger_lose_entry);
}

/* Adds a delivery of the message with this fingerprint. Binds the orphan, if it is not
 * BH__NO_INDEX. */
static bh_status add_delivery(bh_ledger *self, int64_t number, int64_t delivery_tag, uint64_t message, uint32_t orphan,
                              int64_t *out)
{
    *out = 0;
    bh__ledger_channel *on = find_channel(self, number);
    if (!on)
        return BH_ERR_STATE;
    if (delivery_tag < 1 || (self->most_acks && delivery_tag <= on->last_tag))
        return BH_ERR_ARGUMENT;
    uint32_t index = orphan == BH__NO_INDEX ? bh__ledger_add_entry(self, on, delivery_tag) : orphan;
    if (index == BH__NO_INDEX)
        return BH_ERR_NO_MEMORY;
    if (orphan != BH__NO_INDEX)
        bh__ledger_bind_entry(self, index, on, delivery_tag);
    self->entries[index].message = message;
    on->is_complete &= delivery_tag == on->last_tag + 1;
    on->is_flushing = 0;
    on->last_tag = delivery_tag;
    *out = bh__ledger_entry_at(self, index);
    return BH_OK;
}

bh_status bh_ledger_arrive(bh_ledger *self, int64_t number, int64_t delivery_tag, int64_t *out)
{
    return self && out ? add_delivery(self, number, delivery_tag, 0, BH__NO_INDEX, out) : BH_ERR_ARGUMENT;
}

bh_status bh__ledger_arrive_again(bh_ledger *self, int64_t number, int64_t delivery_tag, uint64_t message,
                                  int is_redelivered, int64_t *out, int *is_bound)
{
    uint32_t orphan = is_redelivered ? bh__ledger_find_orphan(self, message) : BH__NO_INDEX;
    bh_status status = add_delivery(self, number, delivery_tag, message, orphan, out);
    *is_bound = status == BH_OK && orphan != BH__NO_INDEX;
    return status;
}

/* Returns the index of an entry that its user can change. A lost entry only becomes stale if it was
 * not written. */
static uint32_t find_changeable(bh_ledger *self, int64_t entry)
{
    uint32_t index = bh__ledger_find_entry(self, entry);
    if (index == BH__NO_INDEX || !self->entries[index].is_lost)
        return index;
    if (self->entries[index].state == BH_STATE_SENT && bh__ledger_undo_publish(self, index))
        bh__ledger_make_stale(self, index);
    return BH__NO_INDEX;
}

/* Returns BH_ERR_STATE for a change that the state of the entry did not allow. */
static bh_status state_status(int is_applied)
{
    return is_applied ? BH_OK : BH_ERR_STATE;
}

bh_status bh__ledger_take(bh_ledger *self, int64_t entry)
{
    if (!self)
        return BH_ERR_ARGUMENT;
    return state_status(bh__ledger_apply(self, bh__ledger_find_entry(self, entry), BH__TAKE));
}

static bh_status finish_entry(bh_ledger *self, uint32_t index)
{
    return state_status(bh__ledger_undo_publish(self, index) && bh__ledger_apply(self, index, BH__FINISH));
}

static bh_status dismiss_entry(bh_ledger *self, uint32_t index, bh_action action)
{
    return state_status(bh__ledger_undo_publish(self, index) && bh__ledger_dismiss_entry(self, index, action));
}

bh_status bh_ledger_acknowledge(bh_ledger *self, int64_t entry)
{
    return self ? finish_entry(self, find_changeable(self, entry)) : BH_ERR_ARGUMENT;
}

bh_status bh_ledger_give_back(bh_ledger *self, int64_t entry)
{
    return self ? dismiss_entry(self, find_changeable(self, entry), BH_ACTION_NONE) : BH_ERR_ARGUMENT;
}

bh_status bh_ledger_settle(bh_ledger *self, int64_t entry, bh_action action, int64_t rung_ms, bh_bytes id,
                           bh_bytes exchange, bh_bytes routing_key)
{
    if (!self || rung_ms < 0 || !id.data || !exchange.data || !routing_key.data)
        return BH_ERR_ARGUMENT;
    uint32_t index = find_changeable(self, entry);
    switch (action) {
    case BH_ACTION_ACK:
    case BH_ACTION_DROP:
        return finish_entry(self, index);
    case BH_ACTION_REJECT:
    case BH_ACTION_RETURN:
        return dismiss_entry(self, index, action);
    case BH_ACTION_RETRY:
    case BH_ACTION_DEFER:
    case BH_ACTION_PARK:
    case BH_ACTION_REPLAY:
        if (index == BH__NO_INDEX)
            return BH_ERR_STATE;
        if (!bh__ledger_add_rung(self, rung_ms))
            return BH_ERR_NO_MEMORY;
        if (!bh__ledger_undo_publish(self, index) || !bh__ledger_apply(self, index, BH__NEED_COPY))
            return BH_ERR_STATE;
        self->entries[index].action = (unsigned char)action;
        self->entries[index].rung_ms = rung_ms;
        self->entries[index].fingerprint = bh__ledger_fingerprint(id, exchange, routing_key);
        return BH_OK;
    case BH_ACTION_NONE:
        break;
    }
    return BH_ERR_ARGUMENT;
}

bh_status bh_ledger_abandon(bh_ledger *self, int64_t entry, int64_t now_ms)
{
    if (!self || now_ms < 0)
        return BH_ERR_ARGUMENT;
    uint32_t index = find_changeable(self, entry);
    return state_status(bh__ledger_undo_publish(self, index) && bh__ledger_abandon_entry(self, index, now_ms));
}

bh_status bh__ledger_postpone(bh_ledger *self, int64_t entry, int64_t now_ms)
{
    if (!self || now_ms < 0)
        return BH_ERR_ARGUMENT;
    uint32_t index = find_changeable(self, entry);
    return state_status(bh__ledger_undo_publish(self, index) && bh__ledger_postpone_copy(self, index, now_ms));
}

void bh__ledger_flush(bh_ledger *self)
{
    for (size_t i = 0; self && i < self->channel_count; i++)
        self->channels[i].is_flushing = 1;
}

/* --------------------------------------------------------------------------------------- counts */

bh_state bh_ledger_state(const bh_ledger *self, int64_t entry)
{
    uint32_t index = self ? bh__ledger_find_entry(self, entry) : BH__NO_INDEX;
    return index == BH__NO_INDEX ? BH_STATE_NONE : (bh_state)self->entries[index].state;
}

int64_t bh_ledger_count(const bh_ledger *self, bh_state state)
{
    return self && (int)state > BH_STATE_NONE && state < BH_STATE_LAST ? self->counts[state] : 0;
}

int64_t bh_ledger_copies(const bh_ledger *self)
{
    return self ? self->counts[BH_STATE_DUE] + self->counts[BH_STATE_SENT] + self->counts[BH_STATE_WAITING] +
                      (int64_t)self->lost.count
                : 0;
}

int64_t bh__ledger_unsettled(const bh_ledger *self)
{
    return self ? self->counts[BH_STATE_ARRIVED] + self->counts[BH_STATE_TAKEN] + bh_ledger_copies(self) : 0;
}

int bh__ledger_is_full(const bh_ledger *self)
{
    return self && self->counts[BH_STATE_ABANDONED] > (int64_t)self->most_abandoned;
}
