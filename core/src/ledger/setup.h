/*
 * Ledger: what copies need before the first of them can be published. Internal.
 *
 * A publisher comes first, then the topology. One step awaits its answer at a time. After a failure
 * both wait for the back-off, whose delays grow until the broker answers a publish.
 */
#ifndef BACKHOP_LEDGER_SETUP_H
#define BACKHOP_LEDGER_SETUP_H

#include "ledger/data.h"

/* Returns 1 if the due copies need a publisher or the topology first. */
int bh__ledger_needs_setup(const bh_ledger *self);
/* Returns the step that the setup needs, or BH_STEP_REST if it waits. */
bh_step_kind bh__ledger_next_setup(bh_ledger *self, int64_t now_ms);
/* Returns when the next attempt of the setup is due; INT64_MAX: not by time. */
int64_t bh__ledger_setup_due_ms(const bh_ledger *self);

/* A publisher was opened. */
void bh__ledger_setup_opened(bh_ledger *self);
/* The topology was declared, or not. */
void bh__ledger_setup_declared(bh_ledger *self, bh_status status, int64_t now_ms);
/* The connection ended: no answer comes any more. */
void bh__ledger_setup_ended(bh_ledger *self);

#endif
