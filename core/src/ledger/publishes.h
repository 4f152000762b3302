/* Ledger: publishers, the publishes in flight, and the rungs that copies need. Internal. */
#ifndef BACKHOP_LEDGER_PUBLISHES_H
#define BACKHOP_LEDGER_PUBLISHES_H

#include "ledger/data.h"

/*
 * Returns a hash of a copy's id, exchange and routing key. If two copies collide, a basic.return of
 * one counts for both: at worst a duplicate.
 */
uint64_t bh__ledger_fingerprint(bh_bytes id, bh_bytes exchange, bh_bytes routing_key);

/* Adds a publish to a publisher that has fewer than `most` in flight. */
void bh__ledger_add_publish(bh__ledger_publisher *self, bh__ledger_publish added);
/* Drops the publish at an index of the pool. Its answer is ignored. */
void bh__ledger_drop_publish(bh__ledger_publisher *self, uint32_t at);
/*
 * Undoes the last step if it is BH_STEP_PUBLISH of this entry: the copy was not written.
 *
 * Returns 0 if the entry has another publish in flight and so cannot change; else 1, also for
 * BH__NO_INDEX.
 */
int bh__ledger_undo_publish(bh_ledger *self, uint32_t index);

/* Returns the number of publishes in flight, on all publishers. */
size_t bh__ledger_count_sent(const bh_ledger *self);
/* Returns the entry that waits for the answer to this publish, or BH__NO_INDEX. */
uint32_t bh__ledger_sent_index(const bh_ledger *self, const bh__ledger_publish *sent);

/*
 * Adds a rung that a copy needs. 0: none. A settlement does so, because steps allocate nothing.
 * False: no memory.
 */
int bh__ledger_add_rung(bh_ledger *self, int64_t rung_ms);
/*
 * Holds the first due copies while their rungs are not declared.
 *
 * Returns the rung to declare, or 0 if the first due copy can be sent.
 */
int64_t bh__ledger_hold_due(bh_ledger *self);

#endif
