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
    bh__ledger_orphan_entry(self, index);
    bh__ledger_drop_old_orphans(self);
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
