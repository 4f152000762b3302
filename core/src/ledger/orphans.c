#include "ledger/orphans.h"

#include "ledger/entries.h"

/* Returns 1 if a later delivery of the message can use the state of this one. */
static int is_worth_keeping(const bh__ledger_entry *of)
{
    switch ((bh_state)of->state) {
    case BH_STATE_TAKEN:
    case BH_STATE_DUE:
    case BH_STATE_SENT:
    case BH_STATE_WAITING:
    case BH_STATE_CONFIRMED:
        return 1;
    case BH_STATE_SETTLED:
        return of->group == BH__GROUP_DONE || of->action != BH_ACTION_NONE; /* else it is given back */
    default:
        return 0;
    }
}

void bh__ledger_close_entry(bh_ledger *self, uint32_t index)
{
    const bh__ledger_entry *closed = &self->entries[index];
    if (!self->most_orphans || !closed->message || !is_worth_keeping(closed)) {
        bh__ledger_end_entry(self, index, BH_STATE_GIVEN_BACK);
        return;
    }
    bh__ledger_orphan_entry(self, index, 0);
    bh__ledger_drop_old_orphans(self);
}

static int has_copy(const bh__ledger_entry *of)
{
    return of->state == BH_STATE_DUE || of->state == BH_STATE_SENT || of->state == BH_STATE_WAITING;
}

/* Returns 1 if the broker can have the copy. A replay ends at once: its caller waits for that. */
static int may_be_safe(const bh__ledger_entry *of)
{
    return of->state == BH_STATE_CONFIRMED || (of->state == BH_STATE_SENT && of->action != BH_ACTION_REPLAY);
}

void bh__ledger_lose_entry(bh_ledger *self, uint32_t index)
{
    const bh__ledger_entry *lost = &self->entries[index];
    if (!has_copy(lost) && lost->event < 0) {
        bh__ledger_end_entry(self, index, BH_STATE_GIVEN_BACK);
        return;
    }
    bh__ledger_orphan_entry(self, index, 1);
    if (!may_be_safe(lost))
        bh__ledger_make_stale(self, index);
}

int64_t bh__ledger_lost_due_ms(const bh_ledger *self)
{
    uint32_t index = self->lost.first;
    if (index == BH__NO_INDEX || self->is_blocked)
        return INT64_MAX;
    int64_t since_ms = self->entries[index].orphaned_ms;
    return (since_ms < self->unblocked_ms ? self->unblocked_ms : since_ms) + self->confirm_timeout_ms;
}

void bh__ledger_drop_old_lost(bh_ledger *self)
{
    uint32_t index = self->lost.first;
    if (bh__ledger_lost_due_ms(self) <= self->now_ms && self->entries[index].event < 0)
        bh__ledger_make_stale(self, index);
}

uint32_t bh__ledger_find_orphan(const bh_ledger *self, uint64_t message)
{
    uint32_t index = message ? self->orphans.first : BH__NO_INDEX;
    while (index != BH__NO_INDEX && self->entries[index].message != message)
        index = self->entries[index].links[BH__BY_ORDER].next;
    return index;
}

void bh__ledger_drop_old_orphans(bh_ledger *self)
{
    for (uint32_t first; (first = self->orphans.first) != BH__NO_INDEX;) {
        if (self->orphans.count <= self->most_orphans &&
            self->now_ms < self->entries[first].orphaned_ms + self->orphan_ms)
            return;
        bh__ledger_end_entry(self, first, BH_STATE_GIVEN_BACK);
    }
}

void bh__ledger_set_orphans(bh_ledger *self, size_t most, int64_t for_ms)
{
    self->most_orphans = most;
    self->orphan_ms = for_ms;
}

int bh__ledger_is_orphan(const bh_ledger *self, int64_t entry)
{
    uint32_t index = bh__ledger_find_entry(self, entry);
    return index != BH__NO_INDEX && self->entries[index].is_orphan;
}

void bh__ledger_drop_orphan(bh_ledger *self, int64_t entry)
{
    if (bh__ledger_is_orphan(self, entry))
        bh__ledger_end_entry(self, bh__ledger_find_entry(self, entry), BH_STATE_GIVEN_BACK);
}
