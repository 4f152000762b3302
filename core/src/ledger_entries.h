/* Ledger: messages in hand, and how their states change. A slot names a message that is in hand. Internal. */
#ifndef BACKHOP_LEDGER_ENTRIES_H
#define BACKHOP_LEDGER_ENTRIES_H

#include "ledger_data.h"

/* What can happen to a message, as the table of transitions has it. */
typedef enum bh__happening {
    BH__IS_TAKEN,
    BH__IS_FINISHED, /* it is to be acknowledged without a copy */
    BH__IS_REJECTED, /* the broker is to retry it */
    BH__IS_GIVEN_BACK,
    BH__NEEDS_COPY,
    BH__IS_WRITTEN,   /* its copy is published */
    BH__IS_UNWRITTEN, /* that publish is taken back */
    BH__IS_CONFIRMED,
    BH__IS_PUT_OFF,
    BH__FALLS_DUE,
    BH__IS_LEFT,
    BH__HAPPENINGS
} bh__happening;

/* The number of the entry in a slot. */
static inline int64_t bh__ledger_entry_number(const bh_ledger *self, uint32_t slot)
{
    return (int64_t)self->entries[slot].serial << BH__LEDGER_SLOT_BITS | slot;
}

/* The slot of an entry's number; BH__NO_SLOT: the message has ended, or there was none. */
static inline uint32_t bh__ledger_find_entry(const bh_ledger *self, int64_t number)
{
    uint32_t slot = (uint32_t)bh__ledger_slot(number);
    return number > 0 && slot < self->entry_count && self->entries[slot].state != BH_STATE_NONE &&
                   bh__ledger_entry_number(self, slot) == number
               ? slot
               : BH__NO_SLOT;
}

/* Enters a message that arrived, the last one of its channel. BH__NO_SLOT: no memory. */
uint32_t bh__ledger_add_entry(bh_ledger *self, bh__ledger_channel *on, int64_t delivery_tag);
/* The message is in hand no more; `how` is the end that is counted. */
void bh__ledger_end_entry(bh_ledger *self, uint32_t slot, bh_state how);

/* 1 where it can happen in the entry's state: then the state is the one that follows, and the entry the last one on that
 * state's list. 0 where it cannot, and of BH__NO_SLOT: nothing was changed. */
int bh__ledger_happens(bh_ledger *self, uint32_t slot, bh__happening what);
/* Moves the entry behind all others on this list. */
void bh__ledger_move_entry(bh_ledger *self, uint32_t slot, bh__ledger_place to);
/* Moves an entry that is due in front of all others that are. */
void bh__ledger_make_first_due(bh_ledger *self, uint32_t slot);

/* BH_STEP_TELL is to tell this event of the message, in place of one that was not told yet. */
void bh__ledger_tell_event(bh_ledger *self, uint32_t slot, bh_event_kind event, bh_status status);
/* Nothing is to be told of the message any more. */
void bh__ledger_forget_news(bh_ledger *self, uint32_t slot);

/* The following are bh__ledger_happens with what goes with it; 0: it cannot happen in the entry's state.
 *
 * It is rejected as the action says (reject, native); BH_ACTION_NONE: it is given back. */
int bh__ledger_dismiss_entry(bh_ledger *self, uint32_t slot, bh_action action);
/* It is left. */
int bh__ledger_leave_entry(bh_ledger *self, uint32_t slot, int64_t now_ms);
/* Its copy is due again after the next delay of the back-off. */
int bh__ledger_put_off_copy(bh_ledger *self, uint32_t slot, int64_t now_ms);
/* Its copy was not taken: it is put off, and the event told. */
int bh__ledger_fail_copy(bh_ledger *self, uint32_t slot, bh_event_kind event, bh_status status, int64_t now_ms);

#endif
