#include "ledger_entries.h"

#include "memory.h"

/* The state that follows; BH_STATE_NONE (0): it cannot happen in this state. A message ends by bh__ledger_end_entry alone: when
 * bh_ledger_next has it acknowledged, rejected or given back, and when its channel ends. */
static const unsigned char transitions[BH_STATE_LAST][BH__HAPPENINGS] = {
    [BH_STATE_ARRIVED] = {[BH__IS_TAKEN] = BH_STATE_TAKEN,
                          [BH__IS_FINISHED] = BH_STATE_SETTLED,
                          [BH__IS_REJECTED] = BH_STATE_SETTLED,
                          [BH__IS_GIVEN_BACK] = BH_STATE_SETTLED,
                          [BH__NEEDS_COPY] = BH_STATE_DUE,
                          [BH__IS_PUT_OFF] = BH_STATE_WAITING,
                          [BH__IS_LEFT] = BH_STATE_LEFT},
    [BH_STATE_TAKEN] = {[BH__IS_FINISHED] = BH_STATE_SETTLED,
                        [BH__IS_REJECTED] = BH_STATE_SETTLED,
                        [BH__IS_GIVEN_BACK] = BH_STATE_SETTLED,
                        [BH__NEEDS_COPY] = BH_STATE_DUE,
                        [BH__IS_PUT_OFF] = BH_STATE_WAITING,
                        [BH__IS_LEFT] = BH_STATE_LEFT},
    [BH_STATE_DUE] = {[BH__IS_WRITTEN] = BH_STATE_SENT,
                      [BH__IS_CONFIRMED] = BH_STATE_CONFIRMED, /* by an earlier publish of the copy */
                      [BH__IS_PUT_OFF] = BH_STATE_WAITING,
                      [BH__IS_LEFT] = BH_STATE_LEFT},
    [BH_STATE_SENT] = {[BH__IS_WRITTEN] = BH_STATE_SENT, /* again, as a probe */
                       [BH__IS_UNWRITTEN] = BH_STATE_TAKEN,
                       [BH__IS_CONFIRMED] = BH_STATE_CONFIRMED,
                       [BH__IS_PUT_OFF] = BH_STATE_WAITING,
                       [BH__FALLS_DUE] = BH_STATE_DUE, /* its publisher ended */
                       [BH__IS_LEFT] = BH_STATE_LEFT},
    [BH_STATE_WAITING] = {[BH__FALLS_DUE] = BH_STATE_DUE,
                          [BH__IS_CONFIRMED] = BH_STATE_CONFIRMED, /* by an earlier publish of the copy */
                          [BH__IS_LEFT] = BH_STATE_LEFT},
    [BH_STATE_LEFT] = {[BH__IS_GIVEN_BACK] = BH_STATE_SETTLED},
};

/* The list that an entry is put on as it gets a state. Of what is settled that is BH__PLACE_DONE where it is to be
 * acknowledged. */
static const unsigned char places[BH_STATE_LAST] = {
    [BH_STATE_SETTLED] = BH__PLACE_OUT,
    [BH_STATE_DUE] = BH__PLACE_DUE,
    [BH_STATE_CONFIRMED] = BH__PLACE_DONE,
    [BH_STATE_LEFT] = BH__PLACE_LEFT,
};

/* ------------------------------------------------------------------------------------------------------------ lists */

static void push_last(bh_ledger *self, bh__ledger_list *to, bh__ledger_entry_list kind, uint32_t slot)
{
    bh__ledger_links *link = &self->entries[slot].links[kind];
    *link = (bh__ledger_links){.before = to->last, .behind = BH__NO_SLOT};
    if (to->last == BH__NO_SLOT)
        to->first = slot;
    else
        self->entries[to->last].links[kind].behind = slot;
    to->last = slot;
    to->count++;
}

static void push_first(bh_ledger *self, bh__ledger_list *to, bh__ledger_entry_list kind, uint32_t slot)
{
    bh__ledger_links *link = &self->entries[slot].links[kind];
    *link = (bh__ledger_links){.before = BH__NO_SLOT, .behind = to->first};
    if (to->first == BH__NO_SLOT)
        to->last = slot;
    else
        self->entries[to->first].links[kind].before = slot;
    to->first = slot;
    to->count++;
}

static void remove_from(bh_ledger *self, bh__ledger_list *from, bh__ledger_entry_list kind, uint32_t slot)
{
    const bh__ledger_links link = self->entries[slot].links[kind];
    if (link.before == BH__NO_SLOT)
        from->first = link.behind;
    else
        self->entries[link.before].links[kind].behind = link.behind;
    if (link.behind == BH__NO_SLOT)
        from->last = link.before;
    else
        self->entries[link.behind].links[kind].before = link.before;
    from->count--;
}

/* ------------------------------------------------------------------------------- channels that have something done */

static void enter_channel(bh_ledger *self, uint32_t at)
{
    bh__ledger_list *to = &self->with_done;
    self->channels[at].links = (bh__ledger_links){.before = to->last, .behind = BH__NO_SLOT};
    if (to->last == BH__NO_SLOT)
        to->first = at;
    else
        self->channels[to->last].links.behind = at;
    to->last = at;
    to->count++;
}

static void leave_channel(bh_ledger *self, uint32_t at)
{
    bh__ledger_list *from = &self->with_done;
    const bh__ledger_links link = self->channels[at].links;
    if (link.before == BH__NO_SLOT)
        from->first = link.behind;
    else
        self->channels[link.before].links.behind = link.behind;
    if (link.behind == BH__NO_SLOT)
        from->last = link.before;
    else
        self->channels[link.behind].links.before = link.before;
    from->count--;
    self->channels[at].gap_ms = BH_LEDGER_NEVER;
}

/* ----------------------------------------------------------------------------------------------------------- places */

static void remove_from_place(bh_ledger *self, uint32_t slot)
{
    bh__ledger_entry *removed = &self->entries[slot];
    if (removed->place == BH__PLACE_NONE)
        return;
    bh__ledger_list *done = &self->channels[removed->channel].done;
    int is_done = removed->place == BH__PLACE_DONE;
    remove_from(self, is_done ? done : &self->places[removed->place], BH__BY_PLACE, slot);
    removed->place = BH__PLACE_NONE;
    if (is_done && done->count == 0)
        leave_channel(self, removed->channel);
}

void bh__ledger_move_entry(bh_ledger *self, uint32_t slot, bh__ledger_place to)
{
    remove_from_place(self, slot);
    if (to == BH__PLACE_NONE)
        return;
    self->entries[slot].place = (unsigned char)to;
    bh__ledger_list *done = &self->channels[self->entries[slot].channel].done;
    push_last(self, to == BH__PLACE_DONE ? done : &self->places[to], BH__BY_PLACE, slot);
    if (to == BH__PLACE_DONE && done->count == 1)
        enter_channel(self, self->entries[slot].channel);
}

void bh__ledger_make_first_due(bh_ledger *self, uint32_t slot)
{
    remove_from_place(self, slot);
    self->entries[slot].place = BH__PLACE_DUE;
    push_first(self, &self->places[BH__PLACE_DUE], BH__BY_PLACE, slot);
}

/* -------------------------------------------------------------------------------------------- those that wait, a heap */

static void put_on_heap(bh_ledger *self, size_t at, uint32_t slot)
{
    self->heap[at] = slot;
    self->entries[slot].heap_at = (uint32_t)at;
}

static int is_earlier(const bh_ledger *self, uint32_t a, uint32_t b)
{
    return self->entries[a].due_ms < self->entries[b].due_ms;
}

static void sift_up(bh_ledger *self, size_t at)
{
    uint32_t slot = self->heap[at];
    for (; at > 0 && is_earlier(self, slot, self->heap[(at - 1) / 2]); at = (at - 1) / 2)
        put_on_heap(self, at, self->heap[(at - 1) / 2]);
    put_on_heap(self, at, slot);
}

static void sift_down(bh_ledger *self, size_t at)
{
    uint32_t slot = self->heap[at];
    for (size_t child; (child = 2 * at + 1) < self->heap_count; at = child) {
        if (child + 1 < self->heap_count && is_earlier(self, self->heap[child + 1], self->heap[child]))
            child++;
        if (!is_earlier(self, self->heap[child], slot))
            break;
        put_on_heap(self, at, self->heap[child]);
    }
    put_on_heap(self, at, slot);
}

static void add_to_heap(bh_ledger *self, uint32_t slot)
{
    put_on_heap(self, self->heap_count++, slot); /* there is room: the heap grows with the entries */
    sift_up(self, self->heap_count - 1);
}

static void remove_from_heap(bh_ledger *self, uint32_t slot)
{
    size_t at = self->entries[slot].heap_at;
    uint32_t last = self->heap[--self->heap_count];
    if (last == slot)
        return;
    put_on_heap(self, at, last);
    sift_up(self, at);
    sift_down(self, self->entries[last].heap_at);
}

/* ---------------------------------------------------------------------------------------------------- begin and end */

static int grow_entries(bh_ledger *self)
{
    void *entries = self->entries, *heap = self->heap;
    size_t count = self->entry_count + 1;
    if (count >= (size_t)1 << BH__LEDGER_SLOT_BITS)
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
    uint32_t slot = self->first_free, serial = 0;
    if (slot != BH__NO_SLOT) {
        self->first_free = self->entries[slot].links[BH__BY_PLACE].behind;
        serial = self->entries[slot].serial;
    } else if (grow_entries(self)) {
        slot = (uint32_t)self->entry_count++;
    } else {
        return BH__NO_SLOT;
    }
    self->entries[slot] = (bh__ledger_entry){.serial = serial % ((1u << BH__LEDGER_SERIAL_BITS) - 1) + 1,
                                             .state = BH_STATE_ARRIVED,
                                             .channel = (uint32_t)(on - self->channels),
                                             .news = -1,
                                             .tag = delivery_tag};
    self->counts[BH_STATE_ARRIVED]++;
    push_last(self, &on->order, BH__BY_ORDER, slot);
    return slot;
}

static void set_state(bh_ledger *self, uint32_t slot, bh_state state)
{
    bh__ledger_entry *changed = &self->entries[slot];
    if (changed->state == BH_STATE_WAITING)
        remove_from_heap(self, slot);
    self->suspects_sent -= changed->state == BH_STATE_SENT && changed->is_suspect;
    self->suspects_sent += state == BH_STATE_SENT && changed->is_suspect;
    self->counts[changed->state]--;
    self->counts[state]++;
    changed->state = (unsigned char)state;
    if (state == BH_STATE_WAITING)
        add_to_heap(self, slot);
}

void bh__ledger_end_entry(bh_ledger *self, uint32_t slot, bh_state how)
{
    bh__ledger_entry *ended = &self->entries[slot];
    remove_from_place(self, slot);
    remove_from(self, &self->channels[ended->channel].order, BH__BY_ORDER, slot);
    bh__ledger_forget_news(self, slot);
    set_state(self, slot, how);
    ended->state = BH_STATE_NONE;
    ended->links[BH__BY_PLACE].behind = self->first_free;
    self->first_free = slot;
}

/* ------------------------------------------------------------------------------------------------------ what happens */

/* BH_STATE_NONE: it cannot happen. */
static bh_state state_after(const bh_ledger *self, uint32_t slot, bh__happening what)
{
    return slot == BH__NO_SLOT ? BH_STATE_NONE : (bh_state)transitions[self->entries[slot].state][what];
}

int bh__ledger_happens(bh_ledger *self, uint32_t slot, bh__happening what)
{
    bh_state next = state_after(self, slot, what);
    if (next == BH_STATE_NONE)
        return 0;
    set_state(self, slot, next);
    bh__ledger_move_entry(self, slot, what == BH__IS_FINISHED ? BH__PLACE_DONE : (bh__ledger_place)places[next]);
    return 1;
}

void bh__ledger_tell_event(bh_ledger *self, uint32_t slot, bh_event_kind event, bh_status status)
{
    bh__ledger_entry *told = &self->entries[slot];
    if (told->news < 0)
        push_last(self, &self->news, BH__BY_NEWS, slot);
    told->news = (short)event;
    told->news_status = status;
}

void bh__ledger_forget_news(bh_ledger *self, uint32_t slot)
{
    if (self->entries[slot].news >= 0)
        remove_from(self, &self->news, BH__BY_NEWS, slot);
    self->entries[slot].news = -1;
}

int bh__ledger_dismiss_entry(bh_ledger *self, uint32_t slot, bh_action action)
{
    int is_given_back = action == BH_ACTION_NONE;
    if (!bh__ledger_happens(self, slot, is_given_back ? BH__IS_GIVEN_BACK : BH__IS_REJECTED))
        return 0;
    self->entries[slot].action = (unsigned char)action;
    if (!is_given_back)
        bh__ledger_tell_event(self, slot, BH_EVENT_RETRIED, BH_OK);
    return 1;
}

int bh__ledger_leave_entry(bh_ledger *self, uint32_t slot, int64_t now_ms)
{
    if (!bh__ledger_happens(self, slot, BH__IS_LEFT))
        return 0;
    bh__ledger_forget_news(self, slot); /* as that it goes out again */
    self->entries[slot].due_ms = now_ms;
    return 1;
}

/* A random number in [0, 1). SplitMix64, by Sebastiano Vigna: the delays of two consumers are to differ, no more. */
static double draw_random(bh_ledger *self)
{
    uint64_t z = self->random += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (double)((z ^ (z >> 31)) >> 11) / 9007199254740992.0; /* 2^53 */
}

int bh__ledger_put_off_copy(bh_ledger *self, uint32_t slot, int64_t now_ms)
{
    if (state_after(self, slot, BH__IS_PUT_OFF) == BH_STATE_NONE)
        return 0;
    bh__ledger_entry *late = &self->entries[slot];
    late->failures++;
    late->wait_ms = bh_policy_delay_ms(self->back_off, late->failures, late->wait_ms, draw_random(self));
    late->due_ms = now_ms + late->wait_ms;
    return bh__ledger_happens(self, slot, BH__IS_PUT_OFF);
}

int bh__ledger_fail_copy(bh_ledger *self, uint32_t slot, bh_event_kind event, bh_status status, int64_t now_ms)
{
    if (!bh__ledger_put_off_copy(self, slot, now_ms))
        return 0;
    bh__ledger_tell_event(self, slot, event, status);
    return 1;
}
