/* Ledger: entries and their transitions. Internal. */
#ifndef BACKHOP_LEDGER_ENTRIES_H
#define BACKHOP_LEDGER_ENTRIES_H

#include "ledger/data.h"

/* The changes of an entry, for the table of transitions. */
typedef enum bh__ledger_change {
    BH__TAKE,
    BH__FINISH, /* acknowledge it without a copy */
    BH__REJECT, /* the broker retries it */
    BH__GIVE_BACK,
    BH__NEED_COPY,
    BH__SEND,      /* publish its copy */
    BH__UNDO_SEND, /* undo that publish, which was not written */
    BH__CONFIRM,
    BH__POSTPONE,
    BH__FALL_DUE,
    BH__ABANDON,
    BH__CHANGES
} bh__ledger_change;

/* Returns the public number of the entry at an index. */
static inline int64_t bh__ledger_entry_at(const bh_ledger *self, uint32_t index)
{
    return (int64_t)self->entries[index].generation << BH__LEDGER_INDEX_BITS | index;
}

/* Returns the index of an entry, or BH__NO_INDEX if its message ended or never was. */
static inline uint32_t bh__ledger_find_entry(const bh_ledger *self, int64_t entry)
{
    uint32_t index = (uint32_t)bh__ledger_index(entry);
    return entry > 0 && index < self->entry_count && self->entries[index].state != BH_STATE_NONE &&
                   bh__ledger_entry_at(self, index) == entry
               ? index
               : BH__NO_INDEX;
}

/* Adds an entry as the last one of its channel. BH__NO_INDEX: no memory. */
uint32_t bh__ledger_add_entry(bh_ledger *self, bh__ledger_channel *on, int64_t delivery_tag);
/* Returns the list that has the entry in order: of its channel by delivery, or of the orphans by
 * age. */
bh__ledger_list *bh__ledger_order_of(bh_ledger *self, uint32_t index);
/*
 * Removes an entry, and counts it by its final state. An orphan is not counted: it was, when its
 * channel closed.
 */
void bh__ledger_end_entry(bh_ledger *self, uint32_t index, bh_state final);

/*
 * Applies a change: sets the next state and puts the entry last in the group of that state.
 *
 * Returns 0, and changes nothing, if the state does not allow it or if `index` is BH__NO_INDEX.
 */
int bh__ledger_apply(bh_ledger *self, uint32_t index, bh__ledger_change change);
/* Puts the entry last in a group. */
void bh__ledger_move_entry(bh_ledger *self, uint32_t index, bh__ledger_group to);
/*
 * Makes an entry of a closed channel an orphan. It leaves its channel, its group and the counts.
 * The step that its settlement or copy needs next comes when a delivery binds it, unless it is
 * lost.
 */
void bh__ledger_orphan_entry(bh_ledger *self, uint32_t index, int is_lost);
/* Binds an orphan to a delivery. It enters the channel, its group and the counts. */
void bh__ledger_bind_entry(bh_ledger *self, uint32_t index, bh__ledger_channel *on, int64_t delivery_tag);
/* Puts a due entry first in its group. */
void bh__ledger_make_first_due(bh_ledger *self, uint32_t index);

/* Queues `event` for the next BH_STEP_EMIT. Replaces a pending event of this entry. */
void bh__ledger_queue_event(bh_ledger *self, uint32_t index, bh_event_kind event, bh_status status);
/* Drops the pending event of this entry. */
void bh__ledger_drop_event(bh_ledger *self, uint32_t index);
/* Queues BH_EVENT_STALE if the entry is lost, else returns 0. */
int bh__ledger_make_stale(bh_ledger *self, uint32_t index);

/* The following apply a change and set the fields that go with it. They return 0 as
 * bh__ledger_apply. */

/* Rejects the message by `action` (reject, native), or gives it back (BH_ACTION_NONE). */
int bh__ledger_dismiss_entry(bh_ledger *self, uint32_t index, bh_action action);
/* Abandons the message. */
int bh__ledger_abandon_entry(bh_ledger *self, uint32_t index, int64_t now_ms);
/* Lets the copy wait for the next delay of the back-off. */
int bh__ledger_postpone_copy(bh_ledger *self, uint32_t index, int64_t now_ms);
/* Postpones a copy that failed, and queues the event. A lost entry becomes stale. */
int bh__ledger_fail_copy(bh_ledger *self, uint32_t index, bh_event_kind event, bh_status status, int64_t now_ms);

#endif
