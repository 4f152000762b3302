/* Ledger, as the worker sees it beside its interface. Internal. */
#ifndef BACKHOP_LEDGER_INTERNAL_H
#define BACKHOP_LEDGER_INTERNAL_H

#include <backhop/ledger.h>

enum { BH__LEDGER_SLOT_BITS = 24, BH__LEDGER_SERIAL_BITS = 29 }; /* of an entry's number, which is below 2^53 */

/* The slot of an entry: no other message in hand has it, so that it is an index for tables. Below 2^24. */
static inline size_t bh__ledger_slot(int64_t entry)
{
    return (size_t)(entry & ((1 << BH__LEDGER_SLOT_BITS) - 1));
}

/* Replaces the back-off policy by a copy of this one. BH_ERR_NO_MEMORY. */
bh_status bh__ledger_set_back_off(bh_ledger *self, const bh_policy *back_off);

#endif
