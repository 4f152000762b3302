#include "ledger/publishes.h"

#include "ledger/entries.h"
#include "ledger/setup.h"
#include "base/memory.h"

#include <backhop/adapter/event.h>
#include <stdlib.h>

/* A copy is abandoned if the connection was cut so often while only this copy was in flight. */
enum { MOST_LOSSES_ALONE = 3 };

/* -------------------------------------------------------------------------- publishes in flight */

uint64_t bh__ledger_fingerprint(bh_bytes id, bh_bytes exchange, bh_bytes routing_key)
{
    const bh_bytes parts[] = {id, exchange, routing_key}, end = {"", 1}; /* a zero byte */
    uint64_t fingerprint = BH__HASH_OF_NOTHING;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        fingerprint = bh__hash_on(bh__hash_on(fingerprint, parts[i]), end);
    return fingerprint;
}

static bh__ledger_list *chain_of(bh__ledger_publisher *self, bh__ledger_chain kind, uint64_t key)
{
    if (kind == BH__OF_ALL)
        return &self->sent;
    return &self->buckets[(kind == BH__OF_FINGERPRINT ? self->bucket_count : 0) +
                          (size_t)(key & (self->bucket_count - 1))];
}

static void add_to_chain(bh__ledger_publisher *self, bh__ledger_chain kind, uint64_t key, uint32_t at)
{
    bh__ledger_list *to = chain_of(self, kind, key);
    self->pool[at].links[kind] = (bh__ledger_links){.previous = to->last, .next = BH__NO_INDEX};
    if (to->last == BH__NO_INDEX)
        to->first = at;
    else
        self->pool[to->last].links[kind].next = at;
    to->last = at;
    to->count++;
}

static void remove_from_chain(bh__ledger_publisher *self, bh__ledger_chain kind, uint64_t key, uint32_t at)
{
    bh__ledger_list *from = chain_of(self, kind, key);
    const bh__ledger_links link = self->pool[at].links[kind];
    if (link.previous == BH__NO_INDEX)
        from->first = link.next;
    else
        self->pool[link.previous].links[kind].next = link.next;
    if (link.next == BH__NO_INDEX)
        from->last = link.previous;
    else
        self->pool[link.next].links[kind].previous = link.previous;
    from->count--;
}

void bh__ledger_add_publish(bh__ledger_publisher *self, bh__ledger_publish added)
{
    uint32_t at = self->first_free;
    if (at == BH__NO_INDEX)
        at = (uint32_t)self->used++;
    else
        self->first_free = self->pool[at].links[BH__OF_ALL].next;
    self->pool[at] = added;
    add_to_chain(self, BH__OF_ALL, 0, at);
    add_to_chain(self, BH__OF_TAG, (uint64_t)added.tag, at);
    add_to_chain(self, BH__OF_FINGERPRINT, added.fingerprint, at);
}

void bh__ledger_drop_publish(bh__ledger_publisher *self, uint32_t at)
{
    const bh__ledger_publish *dropped = &self->pool[at];
    remove_from_chain(self, BH__OF_FINGERPRINT, dropped->fingerprint, at);
    remove_from_chain(self, BH__OF_TAG, (uint64_t)dropped->tag, at);
    remove_from_chain(self, BH__OF_ALL, 0, at);
    self->pool[at].links[BH__OF_ALL].next = self->first_free;
    self->first_free = at;
}

/* Returns the publish with this tag, or BH__NO_INDEX if it is not in flight. */
static uint32_t find_publish(bh__ledger_publisher *self, int64_t tag)
{
    uint32_t at = chain_of(self, BH__OF_TAG, (uint64_t)tag)->first;
    while (at != BH__NO_INDEX && self->pool[at].tag != tag)
        at = self->pool[at].links[BH__OF_TAG].next;
    return at;
}

static bh__ledger_publisher *find_publisher(bh_ledger *self, int64_t number)
{
    for (size_t i = 0; number > 0 && i < BH_LEDGER_MOST_PUBLISHERS; i++)
        if (self->publishers[i].number == number)
            return &self->publishers[i];
    return NULL;
}

int bh__ledger_undo_publish(bh_ledger *self, uint32_t index)
{
    if (index == BH__NO_INDEX || self->entries[index].state != BH_STATE_SENT)
        return 1;
    if (self->step.kind != BH_STEP_PUBLISH || self->step.entry != bh__ledger_entry_at(self, index))
        return 0;
    bh__ledger_publisher *on = find_publisher(self, self->step.publisher);
    uint32_t at = on ? find_publish(on, self->step.tag) : BH__NO_INDEX;
    if (at == BH__NO_INDEX)
        return 0;
    bh__ledger_drop_publish(on, at);
    on->next_tag--;
    self->is_probing = 0;
    self->step.kind = BH_STEP_REST;
    return bh__ledger_apply(self, index, BH__UNDO_SEND);
}

size_t bh__ledger_count_sent(const bh_ledger *self)
{
    size_t count = 0;
    for (size_t i = 0; i < BH_LEDGER_MOST_PUBLISHERS; i++)
        count += self->publishers[i].number ? self->publishers[i].sent.count : 0;
    return count;
}

uint32_t bh__ledger_sent_index(const bh_ledger *self, const bh__ledger_publish *sent)
{
    uint32_t index = bh__ledger_find_entry(self, sent->entry);
    return index != BH__NO_INDEX && self->entries[index].state == BH_STATE_SENT ? index : BH__NO_INDEX;
}

/* --------------------------------------------------------------------- publishers begin and end */

/* Resets the publisher, with room for `most` publishes in flight. */
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
    self->first_free = BH__NO_INDEX;
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
        if (status == BH_OK) {
            *out = opened->number = ++self->last_number;
            bh__ledger_setup_opened(self);
        }
        return status;
    }
    return BH_ERR_STATE;
}

/*
 * Closes the publisher. Its unconfirmed copies become due before all others, in the order of their
 * first publishes. The loop runs from the last publish to the first: if a copy was sent twice, its
 * first publish decides the order.
 */
static void close_publisher(bh_ledger *self, bh__ledger_publisher *closed, int are_suspects)
{
    for (uint32_t at = closed->sent.last; at != BH__NO_INDEX; at = closed->pool[at].links[BH__OF_ALL].previous) {
        uint32_t index = bh__ledger_find_entry(self, closed->pool[at].entry);
        if (index == BH__NO_INDEX)
            continue;
        bh__ledger_entry *of = &self->entries[index];
        if (bh__ledger_sent_index(self, &closed->pool[at]) != BH__NO_INDEX) {
            bh__ledger_apply(self, index, BH__FALL_DUE);
            of->is_suspect |= (unsigned char)are_suspects;
            bh__ledger_make_stale(self, index);
        }
        if (of->group == BH__GROUP_DUE)
            bh__ledger_make_first_due(self, index);
    }
    closed->number = 0;
    self->is_probing = 0;
}

/*
 * Returns the entry if all publishes in flight are copies of one message: on publisher `one`, or on
 * all publishers (NULL). Returns BH__NO_INDEX if there are others or the entry waits for no answer.
 */
static uint32_t only_sent(const bh_ledger *self, const bh__ledger_publisher *one)
{
    int64_t entry = 0;
    uint32_t index = BH__NO_INDEX;
    for (size_t i = 0; i < BH_LEDGER_MOST_PUBLISHERS; i++) {
        const bh__ledger_publisher *on = &self->publishers[i];
        if (!on->number || (one && on != one))
            continue;
        for (uint32_t at = on->sent.first; at != BH__NO_INDEX; at = on->pool[at].links[BH__OF_ALL].next) {
            if (entry && on->pool[at].entry != entry)
                return BH__NO_INDEX;
            entry = on->pool[at].entry;
            index = bh__ledger_sent_index(self, &on->pool[at]);
        }
    }
    return index;
}

static void refuse_copy(bh_ledger *self, uint32_t index, bh_status status, int64_t now_ms)
{
    if (!bh__ledger_make_stale(self, index) && bh__ledger_abandon_entry(self, index, now_ms))
        bh__ledger_queue_event(self, index, BH_EVENT_REFUSED, status);
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
        return BH_ENDING_ERROR;
    }
}

static int is_error(bh_ending ending)
{
    return ending == BH_ENDING_ERROR || ending == BH_ENDING_MISSING;
}

int bh_ledger_close_publisher(bh_ledger *self, int64_t number, bh_ending ending, int64_t now_ms)
{
    bh__ledger_publisher *ended = self ? find_publisher(self, number) : NULL;
    if (!ended)
        return 0;
    uint32_t culprit = is_error(ending) ? only_sent(self, ended) : BH__NO_INDEX;
    close_publisher(self, ended, is_error(ending) && culprit == BH__NO_INDEX);
    if (ending == BH_ENDING_MISSING)
        bh_ledger_forget_rungs(self);
    if (culprit != BH__NO_INDEX && ending == BH_ENDING_MISSING)
        bh__ledger_fail_copy(self, culprit, BH_EVENT_RETURNED, BH_ERR_MISSING, now_ms);
    else if (culprit != BH__NO_INDEX)
        refuse_copy(self, culprit, BH_ERR_CHANNEL, now_ms);
    return ending != BH_ENDING_ORDERLY;
}

/*
 * Returns 1 if the connection ended because of this copy. The copy was a suspect and alone in
 * flight, and the broker closed the connection with an error, or it was cut several times.
 */
static int is_culprit(bh__ledger_entry *alone, bh_ending ending)
{
    if (!alone->is_suspect)
        return 0;
    alone->losses++;
    return is_error(ending) || alone->losses >= MOST_LOSSES_ALONE;
}

void bh_ledger_disconnect(bh_ledger *self, bh_ending ending, int64_t now_ms)
{
    if (!self)
        return;
    uint32_t alone = ending == BH_ENDING_ORDERLY ? BH__NO_INDEX : only_sent(self, NULL);
    for (size_t i = BH_LEDGER_MOST_PUBLISHERS; i-- > 0;)
        if (self->publishers[i].number)
            close_publisher(self, &self->publishers[i], ending != BH_ENDING_ORDERLY && alone == BH__NO_INDEX);
    bh_ledger_block(self, 0, now_ms);
    bh__ledger_setup_ended(self);
    if (alone == BH__NO_INDEX)
        return;
    if (is_culprit(&self->entries[alone], ending)) {
        refuse_copy(self, alone, BH_ERR_CONNECTION, now_ms);
    } else {
        self->entries[alone].is_suspect = 1;
        bh__ledger_postpone_copy(self, alone, now_ms);
    }
}

/* -------------------------------------------------------------------------------------- answers */

static void on_answer(bh_ledger *self, bh__ledger_publisher *on, uint32_t at, int is_ack, int64_t now_ms)
{
    const bh__ledger_publish answered = on->pool[at];
    uint32_t index = bh__ledger_find_entry(self, answered.entry);
    bh__ledger_drop_publish(on, at);
    if (index == BH__NO_INDEX)
        return;
    bh__ledger_entry *of = &self->entries[index];
    int is_safe = is_ack && !answered.is_returned;
    if (of->state == BH_STATE_SENT) {
        self->suspects_sent -= of->is_suspect;
        of->is_suspect = of->losses = 0; /* the broker answered this copy and closed nothing */
    }
    if (is_safe && bh__ledger_apply(self, index, BH__CONFIRM))
        bh__ledger_queue_event(self, index, bh_event_of_copy(of->action), BH_OK);
    else if (!is_safe && of->state == BH_STATE_SENT)
        bh__ledger_fail_copy(self, index, answered.is_returned ? BH_EVENT_RETURNED : BH_EVENT_NACKED, BH_ERR_PUBLISH,
                             now_ms);
}

void bh_ledger_confirm(bh_ledger *self, int64_t number, int64_t tag, int multiple, int is_ack, int64_t now_ms)
{
    bh__ledger_publisher *on = self ? find_publisher(self, number) : NULL;
    if (!on || tag < (multiple ? 0 : 1) || tag >= on->next_tag)
        return;
    self->is_doubtful = self->is_probing = self->probes = 0;
    bh__back_off_forget(&self->setup.back_off);
    uint32_t at = multiple ? on->sent.first : find_publish(on, tag);
    if (!multiple && at != BH__NO_INDEX)
        on_answer(self, on, at, is_ack, now_ms);
    for (; multiple && at != BH__NO_INDEX && (tag == 0 || on->pool[at].tag <= tag); at = on->sent.first)
        on_answer(self, on, at, is_ack, now_ms);
}

void bh_ledger_return(bh_ledger *self, int64_t number, bh_bytes id, bh_bytes exchange, bh_bytes routing_key)
{
    bh__ledger_publisher *on = self ? find_publisher(self, number) : NULL;
    if (!on)
        return;
    bh_ledger_forget_rungs(self);
    uint64_t fingerprint = bh__ledger_fingerprint(id, exchange, routing_key);
    int is_known = 0;
    for (uint32_t at = chain_of(on, BH__OF_FINGERPRINT, fingerprint)->last; at != BH__NO_INDEX;
         at = on->pool[at].links[BH__OF_FINGERPRINT].previous) {
        if (on->pool[at].fingerprint != fingerprint)
            continue;
        if (on->pool[at].is_returned)
            return; /* every older one is returned already */
        is_known = on->pool[at].is_returned = 1;
    }
    for (uint32_t at = on->sent.first; !is_known && at != BH__NO_INDEX; at = on->pool[at].links[BH__OF_ALL].next)
        on->pool[at].is_returned = 1;
}

void bh_ledger_block(bh_ledger *self, int is_blocked, int64_t now_ms)
{
    if (!self || !self->is_blocked == !is_blocked)
        return;
    self->is_blocked = is_blocked != 0;
    self->unblocked_ms = now_ms;
}

/* ---------------------------------------------------------------------------------------- rungs */

static bh__ledger_rung *find_rung(const bh_ledger *self, int64_t rung_ms)
{
    for (size_t i = 0; i < self->rung_count; i++)
        if (self->rungs[i].wait_ms == rung_ms)
            return &self->rungs[i];
    return NULL;
}

int bh__ledger_add_rung(bh_ledger *self, int64_t rung_ms)
{
    void *rungs = self->rungs;
    if (rung_ms == 0 || find_rung(self, rung_ms))
        return 1;
    if (!bh__reserve(&rungs, &self->rung_capacity, sizeof *self->rungs, self->rung_count + 1))
        return 0;
    self->rungs = rungs;
    self->rungs[self->rung_count++] = (bh__ledger_rung){.wait_ms = rung_ms, .state = BH__RUNG_UNKNOWN};
    return 1;
}

int64_t bh__ledger_hold_due(bh_ledger *self)
{
    for (uint32_t index; (index = self->groups[BH__GROUP_DUE].first) != BH__NO_INDEX;) {
        bh__ledger_rung *needed = find_rung(self, self->entries[index].rung_ms);
        if (!needed || needed->state == BH__RUNG_DECLARED)
            return 0;
        bh__ledger_move_entry(self, index, BH__GROUP_HELD);
        if (needed->state == BH__RUNG_REQUESTED)
            continue;
        needed->state = BH__RUNG_REQUESTED;
        return needed->wait_ms;
    }
    return 0;
}

void bh_ledger_rung(bh_ledger *self, int64_t rung_ms, bh_status status, int64_t now_ms)
{
    if (self && rung_ms == 0)
        bh__ledger_setup_declared(self, status, now_ms);
    bh__ledger_rung *asked = self ? find_rung(self, rung_ms) : NULL;
    if (!asked)
        return;
    asked->state = status == BH_OK ? BH__RUNG_DECLARED : BH__RUNG_UNKNOWN;
    for (uint32_t index = self->groups[BH__GROUP_HELD].first, next; index != BH__NO_INDEX; index = next) {
        next = self->entries[index].links[BH__BY_GROUP].next;
        if (self->entries[index].rung_ms != rung_ms)
            continue;
        if (status == BH_OK)
            bh__ledger_move_entry(self, index, BH__GROUP_DUE);
        else
            bh__ledger_fail_copy(self, index, BH_EVENT_RETURNED, status, now_ms);
    }
}

void bh_ledger_forget_rungs(bh_ledger *self)
{
    if (!self)
        return;
    for (size_t i = 0; i < self->rung_count; i++)
        self->rungs[i].state = BH__RUNG_UNKNOWN;
    self->setup.is_forgotten |= self->setup.can_declare;
    while (self->groups[BH__GROUP_HELD].first != BH__NO_INDEX)
        bh__ledger_move_entry(self, self->groups[BH__GROUP_HELD].first, BH__GROUP_DUE);
}
