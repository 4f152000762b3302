/* Ledger: publishers, the publishes that are in flight on them, and the rungs that copies go through. Internal. */
#ifndef BACKHOP_LEDGER_PUBLISHES_H
#define BACKHOP_LEDGER_PUBLISHES_H

#include "ledger_data.h"

/* A number that copies of the same id, exchange and routing key have in common. Where two others have it by accident, a
 * basic.return of one counts for both: a duplicate at worst. */
uint64_t bh__ledger_copy_print(bh_bytes id, bh_bytes exchange, bh_bytes routing_key);

/* Adds a publish to a publisher that has room: fewer than `most` are in flight. */
void bh__ledger_add_publish(bh__ledger_publisher *self, bh__ledger_publish added);
/* An answer to the publish at `at` in the pool is ignored from here on. */
void bh__ledger_forget_publish(bh__ledger_publisher *self, uint32_t at);
/* For a caller that changes what is to happen to a message: where the last step is BH_STEP_PUBLISH of its copy, takes that
 * publish back, as it was not written. 0 where the message is sent otherwise, so that nothing can be changed; 1 else, and
 * of BH__NO_SLOT. */
int bh__ledger_take_back(bh_ledger *self, uint32_t slot);

/* Publishes in flight, on all publishers. */
size_t bh__ledger_count_sent(const bh_ledger *self);
/* The message that waits for the answer to this publish; BH__NO_SLOT: it has ended, or waits for no answer any more. */
uint32_t bh__ledger_sent_slot(const bh_ledger *self, const bh__ledger_publish *sent);

/* Enters a rung that a copy needs; 0: none. Done when a message is settled, so that no step allocates. False: no memory. */
int bh__ledger_know_rung(bh_ledger *self, int64_t rung_ms);
/* Holds the first copies that are due, as far as their rungs are not there. The rung that is to be declared next; 0: none,
 * and the first copy that is due can go. */
int64_t bh__ledger_hold_due(bh_ledger *self);

#endif
