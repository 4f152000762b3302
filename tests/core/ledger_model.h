/*
 * Ledger model: plays a history of happenings against a ledger, beside a broker and a bookkeeping
 * of its own. These keep each delivery, publish, confirm and acknowledgement. After each happening
 * the model checks all invariants. The property test draws the history from a seed, the fuzz target
 * from bytes.
 */
#ifndef BACKHOP_TESTS_LEDGER_MODEL_H
#define BACKHOP_TESTS_LEDGER_MODEL_H

/* A number from 0 to below - 1. */
typedef unsigned ledger_draw(void *source, unsigned below);

/*
 * Plays `happenings` of them, then lets everything be answered and checks that every message ended.
 * A broken invariant is written to stderr with `name`, and ends the program by abort().
 */
void ledger_model_play(ledger_draw *draw, void *source, int happenings, const char *name);

#endif
