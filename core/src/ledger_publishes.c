#include "ledger_publishes.h"

#include "ledger_entries.h"
#include "memory.h"

#include <stdlib.h>

/* A copy is left after the connection was lost so often without a word while it was alone in flight: no accident. */
enum { MOST_LOSSES_ALONE = 3 };

/* --------------------------------------------------------------------------------------------- publishes in flight */

uint64_t bh__ledger_copy_print(bh_bytes id, bh_bytes exchange, bh_bytes routing_key)
{
    const bh_bytes parts[] = {id, exchange, routing_key}, end = {"", 1}; /* a zero byte */
    uint64_t print = BH__HASH_OF_NOTHING;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        print = bh__hash_on(bh__hash_on(print, parts[i]), end);
    return print;
}

static bh__ledger_list *chain_of(bh__ledger_publisher *self, bh__ledger_chain kind, uint64_t key)
{
    if (kind == BH__OF_ALL)
        return &self->sent;
    return &self->buckets[(kind == BH__OF_PRINT ? self->bucket_count : 0) + (size_t)(key & (self->bucket_count - 1))];
}

static void add_to_chain(bh__ledger_publisher *self, bh__ledger_chain kind, uint64_t key, uint32_t at)
{
    bh__ledger_list *to = chain_of(self, kind, key);
    self->pool[at].links[kind] = (bh__ledger_links){.before = to->last, .behind = BH__NO_SLOT};
    if (to->last == BH__NO_SLOT)
        to->first = at;
    else
        self->pool[to->last].links[kind].behind = at;
    to->last = at;
    to->count++;
}

static void remove_from_chain(bh__ledger_publisher *self, bh__ledger_chain kind, uint64_t key, uint32_t at)
{
    bh__ledger_list *from = chain_of(self, kind, key);
    const bh__ledger_links link = self->pool[at].links[kind];
    if (link.before == BH__NO_SLOT)
        from->first = link.behind;
    else
        self->pool[link.before].links[kind].behind = link.behind;
    if (link.behind == BH__NO_SLOT)
        from->last = link.before;
    else
        self->pool[link.behind].links[kind].before = link.before;
    from->count--;
}

void bh__ledger_add_publish(bh__ledger_publisher *self, bh__ledger_publish added)
{
    uint32_t at = self->first_free;
    if (at == BH__NO_SLOT)
        at = (uint32_t)self->used++;
    else
        self->first_free = self->pool[at].links[BH__OF_ALL].behind;
    self->pool[at] = added;
    add_to_chain(self, BH__OF_ALL, 0, at);
    add_to_chain(self, BH__OF_TAG, (uint64_t)added.tag, at);
    add_to_chain(self, BH__OF_PRINT, added.print, at);
}

void bh__ledger_forget_publish(bh__ledger_publisher *self, uint32_t at)
{
    const bh__ledger_publish *forgotten = &self->pool[at];
    remove_from_chain(self, BH__OF_PRINT, forgotten->print, at);
    remove_from_chain(self, BH__OF_TAG, (uint64_t)forgotten->tag, at);
    remove_from_chain(self, BH__OF_ALL, 0, at);
    self->pool[at].links[BH__OF_ALL].behind = self->first_free;
    self->first_free = at;
}

/* BH__NO_SLOT: it was answered, forgotten, or never made. */
static uint32_t find_publish(bh__ledger_publisher *self, int64_t tag)
{
    uint32_t at = chain_of(self, BH__OF_TAG, (uint64_t)tag)->first;
    while (at != BH__NO_SLOT && self->pool[at].tag != tag)
        at = self->pool[at].links[BH__OF_TAG].behind;
    return at;
}

static bh__ledger_publisher *find_publisher(bh_ledger *self, int64_t number)
{
    for (size_t i = 0; number > 0 && i < BH_LEDGER_MOST_PUBLISHERS; i++)
        if (self->publishers[i].number == number)
            return &self->publishers[i];
    return NULL;
}

int bh__ledger_take_back(bh_ledger *self, uint32_t slot)
{
    if (slot == BH__NO_SLOT || self->entries[slot].state != BH_STATE_SENT)
        return 1;
    if (self->step.kind != BH_STEP_PUBLISH || self->step.entry != bh__ledger_entry_number(self, slot))
        return 0;
    bh__ledger_publisher *on = find_publisher(self, self->step.publisher);
    uint32_t at = on ? find_publish(on, self->step.tag) : BH__NO_SLOT;
    if (at == BH__NO_SLOT)
        return 0;
    bh__ledger_forget_publish(on, at);
    on->next_tag--;
    self->is_probing = 0;
    self->step.kind = BH_STEP_REST;
    return bh__ledger_happens(self, slot, BH__IS_UNWRITTEN);
}

size_t bh__ledger_count_sent(const bh_ledger *self)
{
    size_t count = 0;
    for (size_t i = 0; i < BH_LEDGER_MOST_PUBLISHERS; i++)
        count += self->publishers[i].number ? self->publishers[i].sent.count : 0;
    return count;
}

uint32_t bh__ledger_sent_slot(const bh_ledger *self, const bh__ledger_publish *sent)
{
    uint32_t slot = bh__ledger_find_entry(self, sent->entry);
    return slot != BH__NO_SLOT && self->entries[slot].state == BH_STATE_SENT ? slot : BH__NO_SLOT;
}

/* -------------------------------------------------------------------------------------- publishers begin and end */

/* Makes the publisher one that has published nothing, with room for `most`. */
static bh_status reset_publisher(bh__ledger_publisher *self, size_t most)
{
    if (self->capacity < most) {
        size_t bucket_count = 1;
        while (bucket_count < most)
            bucket_count *= 2;
        bh__ledger_publish *pool = malloc(most * sizeof *pool);
        bh__ledger_list *buckets = malloc(2 * bucket_count * sizeof *buckets);
        if (!pool || !buckets) {
            free(pool);
            free(buckets);
            return BH_ERR_NO_MEMORY;
        }
        free(self->pool);
        free(self->buckets);
        *self =
            (bh__ledger_publisher){.pool = pool, .capacity = most, .buckets = buckets, .bucket_count = bucket_count};
    }
    for (size_t i = 0; i < 2 * self->bucket_count; i++)
        self->buckets[i] = bh__ledger_empty_list();
    self->most = most;
    self->used = 0;
    self->first_free = BH__NO_SLOT;
    self->sent = bh__ledger_empty_list();
    self->next_tag = 1;
    return BH_OK;
}

bh_status bh_ledger_open_publisher(bh_ledger *self, int64_t *out)
{
    if (!self || !out)
        return BH_ERR_ARGUMENT;
    *out = 0;
    for (size_t i = 0; i < BH_LEDGER_MOST_PUBLISHERS; i++) {
        bh__ledger_publisher *opened = &self->publishers[i];
        if (opened->number)
            continue;
        bh_status status = reset_publisher(opened, self->most_sent);
        if (status == BH_OK)
            *out = opened->number = ++self->last_number;
        return status;
    }
    return BH_ERR_STATE;
}

/* Closes the publisher. What was not confirmed on it is due before all else, in the order in which it was sent first:
 * the walk goes from the last publish to the first, so that of a message that was sent twice the first publish counts. */
static void close_publisher(bh_ledger *self, bh__ledger_publisher *closed, int are_suspects)
{
    for (uint32_t at = closed->sent.last; at != BH__NO_SLOT; at = closed->pool[at].links[BH__OF_ALL].before) {
        uint32_t slot = bh__ledger_find_entry(self, closed->pool[at].entry);
        if (slot == BH__NO_SLOT)
            continue;
        bh__ledger_entry *of = &self->entries[slot];
        if (bh__ledger_sent_slot(self, &closed->pool[at]) != BH__NO_SLOT) {
            bh__ledger_happens(self, slot, BH__FALLS_DUE);
            of->is_suspect |= (unsigned char)are_suspects;
        }
        if (of->place == BH__PLACE_DUE)
            bh__ledger_make_first_due(self, slot);
    }
    closed->number = 0;
    self->is_probing = 0;
}

/* The message whose copies alone are in flight, on this publisher or (NULL) on all; BH__NO_SLOT: there are others, or it
 * waits for no answer any more. */
static uint32_t only_sent(const bh_ledger *self, const bh__ledger_publisher *one)
{
    int64_t number = 0;
    uint32_t slot = BH__NO_SLOT;
    for (size_t i = 0; i < BH_LEDGER_MOST_PUBLISHERS; i++) {
        const bh__ledger_publisher *on = &self->publishers[i];
        if (!on->number || (one && on != one))
            continue;
        for (uint32_t at = on->sent.first; at != BH__NO_SLOT; at = on->pool[at].links[BH__OF_ALL].behind) {
            if (number && on->pool[at].entry != number)
                return BH__NO_SLOT;
            number = on->pool[at].entry;
            slot = bh__ledger_sent_slot(self, &on->pool[at]);
        }
    }
    return slot;
}

static void refuse_copy(bh_ledger *self, uint32_t slot, bh_status status, int64_t now_ms)
{
    if (bh__ledger_leave_entry(self, slot, now_ms))
        bh__ledger_tell_event(self, slot, BH_EVENT_REFUSED, status);
}

bh_ending bh_ending_of(int reply_code)
{
    enum { CONNECTION_FORCED = 320, ACCESS_REFUSED = 403, NOT_FOUND = 404 };
    switch (reply_code) {
    case 0:
    case CONNECTION_FORCED:
        return BH_ENDING_ORDERLY;
    case ACCESS_REFUSED:
    case NOT_FOUND:
        return BH_ENDING_MISSING;
    default:
        return BH_ENDING_COMPLAINT;
    }
}

static int is_complaint(bh_ending ending)
{
    return ending == BH_ENDING_COMPLAINT || ending == BH_ENDING_MISSING;
}

int bh_ledger_close_publisher(bh_ledger *self, int64_t number, bh_ending ending, int64_t now_ms)
{
    bh__ledger_publisher *ended = self ? find_publisher(self, number) : NULL;
    if (!ended)
        return 0;
    uint32_t culprit = is_complaint(ending) ? only_sent(self, ended) : BH__NO_SLOT;
    close_publisher(self, ended, is_complaint(ending) && culprit == BH__NO_SLOT);
    if (culprit != BH__NO_SLOT && ending == BH_ENDING_MISSING)
        bh__ledger_fail_copy(self, culprit, BH_EVENT_RETURNED, BH_ERR_MISSING, now_ms);
    else if (culprit != BH__NO_SLOT)
        refuse_copy(self, culprit, BH_ERR_CHANNEL, now_ms);
    return ending != BH_ENDING_ORDERLY;
}

/* Whether the connection was lost over this copy, which was alone in flight: it was so as a suspect, and the broker
 * complained, or the connection was lost without a word again and again. */
static int is_culprit(bh__ledger_entry *alone, bh_ending ending)
{
    if (!alone->is_suspect)
        return 0;
    alone->losses++;
    return is_complaint(ending) || alone->losses >= MOST_LOSSES_ALONE;
}

void bh_ledger_disconnect(bh_ledger *self, bh_ending ending, int64_t now_ms)
{
    if (!self)
        return;
    uint32_t alone = ending == BH_ENDING_ORDERLY ? BH__NO_SLOT : only_sent(self, NULL);
    for (size_t i = BH_LEDGER_MOST_PUBLISHERS; i-- > 0;)
        if (self->publishers[i].number)
            close_publisher(self, &self->publishers[i], ending != BH_ENDING_ORDERLY && alone == BH__NO_SLOT);
    bh_ledger_block(self, 0, now_ms);
    if (alone == BH__NO_SLOT)
        return;
    if (is_culprit(&self->entries[alone], ending)) {
        refuse_copy(self, alone, BH_ERR_CONNECTION, now_ms);
    } else {
        self->entries[alone].is_suspect = 1;
        bh__ledger_put_off_copy(self, alone, now_ms);
    }
}

/* ---------------------------------------------------------------------------------------------------------- answers */

static void on_answer(bh_ledger *self, bh__ledger_publisher *on, uint32_t at, int is_ack, int64_t now_ms)
{
    const bh__ledger_publish answered = on->pool[at];
    uint32_t slot = bh__ledger_find_entry(self, answered.entry);
    bh__ledger_forget_publish(on, at);
    if (slot == BH__NO_SLOT)
        return;
    bh__ledger_entry *of = &self->entries[slot];
    int is_safe = is_ack && !answered.is_returned;
    if (of->state == BH_STATE_SENT) {
        self->suspects_sent -= of->is_suspect;
        of->is_suspect = of->losses = 0; /* the broker takes or refuses this copy without ending anything */
    }
    if (is_safe && bh__ledger_happens(self, slot, BH__IS_CONFIRMED))
        bh__ledger_tell_event(self, slot, bh_event_of_copy(of->action), BH_OK);
    else if (!is_safe && of->state == BH_STATE_SENT)
        bh__ledger_fail_copy(self, slot, answered.is_returned ? BH_EVENT_RETURNED : BH_EVENT_NACKED, BH_ERR_PUBLISH,
                             now_ms);
}

void bh_ledger_confirm(bh_ledger *self, int64_t number, int64_t tag, int multiple, int is_ack, int64_t now_ms)
{
    bh__ledger_publisher *on = self ? find_publisher(self, number) : NULL;
    if (!on || tag < (multiple ? 0 : 1) || tag >= on->next_tag)
        return;
    self->is_doubtful = self->is_probing = self->probes = 0;
    uint32_t at = multiple ? on->sent.first : find_publish(on, tag);
    if (!multiple && at != BH__NO_SLOT)
        on_answer(self, on, at, is_ack, now_ms);
    for (; multiple && at != BH__NO_SLOT && (tag == 0 || on->pool[at].tag <= tag); at = on->sent.first)
        on_answer(self, on, at, is_ack, now_ms);
}

void bh_ledger_return(bh_ledger *self, int64_t number, bh_bytes id, bh_bytes exchange, bh_bytes routing_key)
{
    bh__ledger_publisher *on = self ? find_publisher(self, number) : NULL;
    if (!on)
        return;
    uint64_t print = bh__ledger_copy_print(id, exchange, routing_key);
    int is_known = 0;
    for (uint32_t at = chain_of(on, BH__OF_PRINT, print)->last; at != BH__NO_SLOT;
         at = on->pool[at].links[BH__OF_PRINT].before) {
        if (on->pool[at].print != print)
            continue;
        if (on->pool[at].is_returned)
            return; /* and so is every older one */
        is_known = on->pool[at].is_returned = 1;
    }
    for (uint32_t at = on->sent.first; !is_known && at != BH__NO_SLOT; at = on->pool[at].links[BH__OF_ALL].behind)
        on->pool[at].is_returned = 1;
}

void bh_ledger_block(bh_ledger *self, int is_blocked, int64_t now_ms)
{
    if (!self || !self->is_blocked == !is_blocked)
        return;
    self->is_blocked = is_blocked != 0;
    self->unblocked_ms = now_ms;
}

/* ------------------------------------------------------------------------------------------------------------- rungs */

static bh__ledger_rung *find_rung(const bh_ledger *self, int64_t rung_ms)
{
    for (size_t i = 0; i < self->rung_count; i++)
        if (self->rungs[i].wait_ms == rung_ms)
            return &self->rungs[i];
    return NULL;
}

int bh__ledger_know_rung(bh_ledger *self, int64_t rung_ms)
{
    void *rungs = self->rungs;
    if (rung_ms == 0 || find_rung(self, rung_ms))
        return 1;
    if (!bh__reserve(&rungs, &self->rung_capacity, sizeof *self->rungs, self->rung_count + 1))
        return 0;
    self->rungs = rungs;
    self->rungs[self->rung_count++] = (bh__ledger_rung){.wait_ms = rung_ms, .is = BH__RUNG_UNKNOWN};
    return 1;
}

int64_t bh__ledger_hold_due(bh_ledger *self)
{
    for (uint32_t slot; (slot = self->places[BH__PLACE_DUE].first) != BH__NO_SLOT;) {
        bh__ledger_rung *needed = find_rung(self, self->entries[slot].rung_ms);
        if (!needed || needed->is == BH__RUNG_THERE)
            return 0;
        bh__ledger_move_entry(self, slot, BH__PLACE_HELD);
        if (needed->is == BH__RUNG_ASKED)
            continue;
        needed->is = BH__RUNG_ASKED;
        return needed->wait_ms;
    }
    return 0;
}

void bh_ledger_rung(bh_ledger *self, int64_t rung_ms, bh_status status, int64_t now_ms)
{
    bh__ledger_rung *asked = self ? find_rung(self, rung_ms) : NULL;
    if (!asked)
        return;
    asked->is = status == BH_OK ? BH__RUNG_THERE : BH__RUNG_UNKNOWN;
    for (uint32_t slot = self->places[BH__PLACE_HELD].first, behind; slot != BH__NO_SLOT; slot = behind) {
        behind = self->entries[slot].links[BH__BY_PLACE].behind;
        if (self->entries[slot].rung_ms != rung_ms)
            continue;
        if (status == BH_OK)
            bh__ledger_move_entry(self, slot, BH__PLACE_DUE);
        else
            bh__ledger_fail_copy(self, slot, BH_EVENT_RETURNED, status, now_ms);
    }
}

void bh_ledger_forget_rungs(bh_ledger *self)
{
    if (!self)
        return;
    for (size_t i = 0; i < self->rung_count; i++)
        self->rungs[i].is = BH__RUNG_UNKNOWN;
    while (self->places[BH__PLACE_HELD].first != BH__NO_SLOT)
        bh__ledger_move_entry(self, self->places[BH__PLACE_HELD].first, BH__PLACE_DUE);
}
