/*
 * Ledger: orphans. Internal.
 *
 * An orphan is a message whose channel closed while a handler had it, or before its settlement was
 * sent. The broker never got an acknowledgement of it, and delivers it again. If the ledger binds
 * that delivery to the orphan, the message is neither handled twice nor copied twice.
 *
 * A lost entry is an orphan that the ledger does not bind, because bh_calls recognizes the
 * delivery. It ends with its next event: the copy is confirmed, or the message is stale.
 */
#ifndef BACKHOP_LEDGER_ORPHANS_H
#define BACKHOP_LEDGER_ORPHANS_H

#include "ledger/data.h"

/* Ends the entry of a closed channel, or makes it an orphan. */
void bh__ledger_close_entry(bh_ledger *self, uint32_t index);
/* Makes an entry of a closed channel a lost one. Ends it if no event is to come. */
void bh__ledger_lose_entry(bh_ledger *self, uint32_t index);
/* Makes the oldest lost entry stale if its confirm is late. */
void bh__ledger_drop_old_lost(bh_ledger *self);
/* Returns when the oldest lost entry becomes stale by time; INT64_MAX: never. */
int64_t bh__ledger_lost_due_ms(const bh_ledger *self);
/* Returns the oldest orphan with this fingerprint, or BH__NO_INDEX. */
uint32_t bh__ledger_find_orphan(const bh_ledger *self, uint64_t message);
/* Ends the orphans that are too old or too many. */
void bh__ledger_drop_old_orphans(bh_ledger *self);

#endif
