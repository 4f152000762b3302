#include "ledger/entries.h"

#include "base/memory.h"

/*
 * The next state for each state and change. BH_STATE_NONE (0): the state does not allow the change.
 * Only bh__ledger_end_entry ends a message: in a step that acknowledges, rejects or gives it back,
 * and when its channel closes.
 */
static const unsigned char transitions[BH_STATE_LAST][BH__CHANGES] = {
    [BH_STATE_ARRIVED] = {[BH__TAKE] = BH_STATE_TAKEN,
                          [BH__FINISH] = BH_STATE_SETTLED,
                          [BH__REJECT] = BH_STATE_SETTLED,
                          [BH__GIVE_BACK] = BH_STATE_SETTLED,
                          [BH__NEED_COPY] = BH_STATE_DUE,
                          [BH__POSTPONE] = BH_STATE_WAITING,
                          [BH__ABANDON] = BH_STATE_ABANDONED},
    [BH_STATE_TAKEN] = {[BH__FINISH] = BH_STATE_SETTLED,
                        [BH__REJECT] = BH_STATE_SETTLED,
                        [BH__GIVE_BACK] = BH_STATE_SETTLED,
                        [BH__NEED_COPY] = BH_STATE_DUE,
                        [BH__POSTPONE] = BH_STATE_WAITING,
                        [BH__ABANDON] = BH_STATE_ABANDONED},
    [BH_STATE_DUE] = {[BH__SEND] = BH_STATE_SENT,
                      [BH__CONFIRM] = BH_STATE_CONFIRMED, /* by an earlier publish of the copy */
                      [BH__POSTPONE] = BH_STATE_WAITING,
                      [BH__ABANDON] = BH_STATE_ABANDONED},
    [BH_STATE_SENT] = {[BH__SEND] = BH_STATE_SENT, /* again, as a probe */
                       [BH__UNDO_SEND] = BH_STATE_TAKEN,
                       [BH__CONFIRM] = BH_STATE_CONFIRMED,
                       [BH__POSTPONE] = BH_STATE_WAITING,
                       [BH__FALL_DUE] = BH_STATE_DUE, /* its publisher ended */
                       [BH__ABANDON] = BH_STATE_ABANDONED},
    [BH_STATE_WAITING] = {[BH__FALL_DUE] = BH_STATE_DUE,
                          [BH__CONFIRM] = BH_STATE_CONFIRMED, /* by an earlier publish of the copy */
                          [BH__ABANDON] = BH_STATE_ABANDONED},
    [BH_STATE_ABANDONED] = {[BH__GIVE_BACK] = BH_STATE_SETTLED},
};

/* The group of an entry that enters a state. BH__FINISH uses BH__GROUP_DONE instead. */
static const unsigned char groups[BH_STATE_LAST] = {
    [BH_STATE_SETTLED] = BH__GROUP_DISMISSED,
    [BH_STATE_DUE] = BH__GROUP_DUE,
    [BH_STATE_CONFIRMED] = BH__GROUP_DONE,
    [BH_STATE_ABANDONED] = BH__GROUP_ABANDONED,
};

/* ---------------------------------------------------------------------------------------- lists */

static void push_last(bh_ledger *self, bh__ledger_list *to, bh__ledger_entry_list kind, uint32_t index)
{
    bh__ledger_links *link = &self->entries[index].links[kind];
    *link = (bh__ledger_links){.previous = to->last, .next = BH__NO_INDEX};
    if (to->last == BH__NO_INDEX)
        to->first = index;
    else
        self->entries[to->last].links[kind].next = index;
    to->last = index;
    to->count++;
}

static void push_first(bh_ledger *self, bh__ledger_list *to, bh__ledger_entry_list kind, uint32_t index)
{
    bh__ledger_links *link = &self->entries[index].links[kind];
    *link = (bh__ledger_links){.previous = BH__NO_INDEX, .next = to->first};
    if (to->first == BH__NO_INDEX)
        to->last = index;
    else
        self->entries[to->first].links[kind].previous = index;
    to->first = index;
    to->count++;
}

static void remove_from(bh_ledger *self, bh__ledger_list *from, bh__ledger_entry_list kind, uint32_t index)
{
    const bh__ledger_links link = self->entries[index].links[kind];
    if (link.previous == BH__NO_INDEX)
        from->first = link.next;
    else
        self->entries[link.previous].links[kind].next = link.next;
    if (link.next == BH__NO_INDEX)
        from->last = link.previous;
    else
        self->entries[link.next].links[kind].previous = link.previous;
    from->count--;
}

/* --------------------------------------------------------- channels with entries to acknowledge */

static void add_with_done(bh_ledger *self, uint32_t at)
{
    bh__ledger_list *to = &self->with_done;
    self->channels[at].links = (bh__ledger_links){.previous = to->last, .next = BH__NO_INDEX};
    if (to->last == BH__NO_INDEX)
        to->first = at;
    else
        self->channels[to->last].links.next = at;
    to->last = at;
    to->count++;
}

static void remove_with_done(bh_ledger *self, uint32_t at)
{
    bh__ledger_list *from = &self->with_done;
    const bh__ledger_links link = self->channels[at].links;
    if (link.previous == BH__NO_INDEX)
        from->first = link.next;
    else
        self->channels[link.previous].links.next = link.next;
    if (link.next == BH__NO_INDEX)
        from->last = link.previous;
    else
        self->channels[link.next].links.previous = link.previous;
    from->count--;
    self->channels[at].gap_ms = BH_LEDGER_NEVER;
}

/* --------------------------------------------------------------------------------------- groups */

static void remove_from_group(bh_ledger *self, uint32_t index)
{
    bh__ledger_entry *removed = &self->entries[index];
    if (removed->group == BH__GROUP_NONE)
        return;
    bh__ledger_list *done = &self->channels[removed->channel].done;
    int is_done = removed->group == BH__GROUP_DONE;
    remove_from(self, is_done ? done : &self->groups[removed->group], BH__BY_GROUP, index);
    removed->group = BH__GROUP_NONE;
    if (is_done && done->count == 0)
        remove_with_done(self, removed->channel);
}

void bh__ledger_move_entry(bh_ledger *self, uint32_t index, bh__ledger_group to)
{
    remove_from_group(self, index);
    if (self->entries[index].is_orphan) {
        self->entries[index].next_group = (unsigned char)to;
        return;
    }
    if (to == BH__GROUP_NONE)
        return;
    self->entries[index].group = (unsigned char)to;
    bh__ledger_list *done = &self->channels[self->entries[index].channel].done;
    push_last(self, to == BH__GROUP_DONE ? done : &self->groups[to], BH__BY_GROUP, index);
    if (to == BH__GROUP_DONE && done->count == 1)
        add_with_done(self, self->entries[index].channel);
}

void bh__ledger_make_first_due(bh_ledger *self, uint32_t index)
{
    if (self->entries[index].is_orphan) /* it becomes due when it is bound */
        return;
    remove_from_group(self, index);
    self->entries[index].group = BH__GROUP_DUE;
    push_first(self, &self->groups[BH__GROUP_DUE], BH__BY_GROUP, index);
}

/* ---------------------------------------------------------------- the heap of entries that wait */

static void put_on_heap(bh_ledger *self, size_t at, uint32_t index)
{
    self->heap[at] = index;
    self->entries[index].heap_at = (uint32_t)at;
}

static int is_earlier(const bh_ledger *self, uint32_t a, uint32_t b)
{
    return self->entries[a].due_ms < self->entries[b].due_ms;
}

static void sift_up(bh_ledger *self, size_t at)
{
    uint32_t index = self->heap[at];
    for (; at > 0 && is_earlier(self, index, self->heap[(at - 1) / 2]); at = (at - 1) / 2)
        put_on_heap(self, at, self->heap[(at - 1) / 2]);
    put_on_heap(self, at, index);
}

static void sift_down(bh_ledger *self, size_t at)
{
    uint32_t index = self->heap[at];
    for (size_t child; (child = 2 * at + 1) < self->heap_count; at = child) {
        if (child + 1 < self->heap_count && is_earlier(self, self->heap[child + 1], self->heap[child]))
            child++;
        if (!is_earlier(self, self->heap[child], index))
            break;
        put_on_heap(self, at, self->heap[child]);
    }
    put_on_heap(self, at, index);
}

static void add_to_heap(bh_ledger *self, uint32_t index)
{
    put_on_heap(self, self->heap_count++, index); /* there is room: the heap grows with the entries */
    sift_up(self, self->heap_count - 1);
}

static void remove_from_heap(bh_ledger *self, uint32_t index)
{
    size_t at = self->entries[index].heap_at;
    uint32_t last = self->heap[--self->heap_count];
    if (last == index)
        return;
    put_on_heap(self, at, last);
    sift_up(self, at);
    sift_down(self, self->entries[last].heap_at);
}

/* ------------------------------------------------------------------------------- add and remove */

static int grow_entries(bh_ledger *self)
{
    void *entries = self->entries, *heap = self->heap;
    size_t count = self->entry_count + 1;
    if (count >= (size_t)1 << BH__LEDGER_INDEX_BITS)
        return 0;
    int has_grown = bh__reserve(&entries, &self->entry_capacity, sizeof *self->entries, count);
    self->entries = entries;
    if (has_grown)
        has_grown = bh__reserve(&heap, &self->heap_capacity, sizeof *self->heap, count);
    self->heap = heap;
    return has_grown;
}

uint32_t bh__ledger_add_entry(bh_ledger *self, bh__ledger_channel *on, int64_t delivery_tag)
{
    uint32_t index = self->first_free, generation = 0;
    if (index != BH__NO_INDEX) {
        self->first_free = self->entries[index].links[BH__BY_GROUP].next;
        generation = self->entries[index].generation;
    } else if (grow_entries(self)) {
        index = (uint32_t)self->entry_count++;
    } else {
        return BH__NO_INDEX;
    }
    self->entries[index] = (bh__ledger_entry){.generation = generation % ((1u << BH__LEDGER_GENERATION_BITS) - 1) + 1,
                                              .state = BH_STATE_ARRIVED,
                                              .channel = (uint32_t)(on - self->channels),
                                              .event = -1,
                                              .tag = delivery_tag};
    self->counts[BH_STATE_ARRIVED]++;
    push_last(self, &on->order, BH__BY_ORDER, index);
    return index;
}

static void set_state(bh_ledger *self, uint32_t index, bh_state state)
{
    bh__ledger_entry *changed = &self->entries[index];
    if (changed->state == BH_STATE_WAITING)
        remove_from_heap(self, index);
    self->suspects_sent -= changed->state == BH_STATE_SENT && changed->is_suspect;
    self->suspects_sent += state == BH_STATE_SENT && changed->is_suspect;
    self->counts[changed->state] -= !changed->is_orphan;
    self->counts[state] += !changed->is_orphan;
    changed->state = (unsigned char)state;
    if (state == BH_STATE_WAITING)
        add_to_heap(self, index);
}

bh__ledger_list *bh__ledger_order_of(bh_ledger *self, uint32_t index)
{
    const bh__ledger_entry *of = &self->entries[index];
    return of->is_lost ? &self->lost : of->is_orphan ? &self->orphans : &self->channels[of->channel].order;
}

void bh__ledger_orphan_entry(bh_ledger *self, uint32_t index, int is_lost)
{
    bh__ledger_entry *left = &self->entries[index];
    unsigned char group = left->group == BH__GROUP_HELD ? BH__GROUP_DUE : left->group;
    remove_from_group(self, index);
    remove_from(self, bh__ledger_order_of(self, index), BH__BY_ORDER, index);
    self->counts[left->state]--;
    self->counts[BH_STATE_GIVEN_BACK]++;
    left->is_orphan = 1;
    left->is_lost = is_lost != 0;
    left->next_group = group;
    left->orphaned_ms = self->now_ms;
    push_last(self, bh__ledger_order_of(self, index), BH__BY_ORDER, index);
}

void bh__ledger_bind_entry(bh_ledger *self, uint32_t index, bh__ledger_channel *on, int64_t delivery_tag)
{
    bh__ledger_entry *bound = &self->entries[index];
    remove_from(self, &self->orphans, BH__BY_ORDER, index);
    bound->is_orphan = 0;
    bound->channel = (uint32_t)(on - self->channels);
    bound->tag = delivery_tag;
    self->counts[bound->state]++;
    push_last(self, &on->order, BH__BY_ORDER, index);
    bh__ledger_move_entry(self, index, (bh__ledger_group)bound->next_group);
}

void bh__ledger_end_entry(bh_ledger *self, uint32_t index, bh_state final)
{
    bh__ledger_entry *ended = &self->entries[index];
    remove_from_group(self, index);
    remove_from(self, bh__ledger_order_of(self, index), BH__BY_ORDER, index);
    bh__ledger_drop_event(self, index);
    set_state(self, index, final);
    ended->state = BH_STATE_NONE;
    ended->links[BH__BY_GROUP].next = self->first_free;
    self->first_free = index;
}

/* ---------------------------------------------------------------------------------- transitions */

/* Returns BH_STATE_NONE if the state does not allow the change. */
static bh_state state_after(const bh_ledger *self, uint32_t index, bh__ledger_change change)
{
    return index == BH__NO_INDEX ? BH_STATE_NONE : (bh_state)transitions[self->entries[index].state][change];
}

int bh__ledger_apply(bh_ledger *self, uint32_t index, bh__ledger_change change)
{
    bh_state next = state_after(self, index, change);
    if (next == BH_STATE_NONE)
        return 0;
    set_state(self, index, next);
    bh__ledger_move_entry(self, index, change == BH__FINISH ? BH__GROUP_DONE : (bh__ledger_group)groups[next]);
    return 1;
}

void bh__ledger_queue_event(bh_ledger *self, uint32_t index, bh_event_kind event, bh_status status)
{
    bh__ledger_entry *of = &self->entries[index];
    if (of->event < 0)
        push_last(self, &self->events, BH__BY_EVENT, index);
    of->event = (short)event;
    of->event_status = status;
}

void bh__ledger_drop_event(bh_ledger *self, uint32_t index)
{
    if (self->entries[index].event >= 0)
        remove_from(self, &self->events, BH__BY_EVENT, index);
    self->entries[index].event = -1;
}

int bh__ledger_make_stale(bh_ledger *self, uint32_t index)
{
    if (index == BH__NO_INDEX || !self->entries[index].is_lost)
        return 0;
    bh__ledger_queue_event(self, index, BH_EVENT_STALE, BH_ERR_CHANNEL);
    return 1;
}

int bh__ledger_dismiss_entry(bh_ledger *self, uint32_t index, bh_action action)
{
    int is_given_back = action == BH_ACTION_NONE;
    if (!bh__ledger_apply(self, index, is_given_back ? BH__GIVE_BACK : BH__REJECT))
        return 0;
    self->entries[index].action = (unsigned char)action;
    if (!is_given_back)
        bh__ledger_queue_event(self, index, BH_EVENT_RETRIED, BH_OK);
    return 1;
}

int bh__ledger_abandon_entry(bh_ledger *self, uint32_t index, int64_t now_ms)
{
    if (!bh__ledger_apply(self, index, BH__ABANDON))
        return 0;
    bh__ledger_drop_event(self, index); /* for example that it is sent again */
    self->entries[index].due_ms = now_ms;
    return 1;
}

int bh__ledger_postpone_copy(bh_ledger *self, uint32_t index, int64_t now_ms)
{
    if (state_after(self, index, BH__POSTPONE) == BH_STATE_NONE)
        return 0;
    bh__ledger_entry *late = &self->entries[index];
    late->failures++;
    late->wait_ms = bh_policy_delay_ms(self->back_off, late->failures, late->wait_ms, bh__draw_number(&self->random));
    late->due_ms = now_ms + late->wait_ms;
    return bh__ledger_apply(self, index, BH__POSTPONE);
}

int bh__ledger_fail_copy(bh_ledger *self, uint32_t index, bh_event_kind event, bh_status status, int64_t now_ms)
{
    if (bh__ledger_make_stale(self, index))
        return 1;
    if (!bh__ledger_postpone_copy(self, index, now_ms))
        return 0;
    bh__ledger_queue_event(self, index, event, status);
    return 1;
}
