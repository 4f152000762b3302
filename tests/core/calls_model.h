/*
 * Calls model: plays a history of deliveries, ends of calls and lost channels against bh_calls,
 * beside a list of its own. After each delivery it checks what must hold. The property test draws
 * the history from a seed, the fuzz target from bytes.
 */
#ifndef BACKHOP_TESTS_CALLS_MODEL_H
#define BACKHOP_TESTS_CALLS_MODEL_H

/* Returns a number from 0 to below - 1. */
typedef unsigned calls_draw(void *source, unsigned below);

/*
 * Plays `happenings` of them. If a check fails, it writes the check and `name` to stderr, and
 * aborts.
 */
void calls_model_play(calls_draw *draw, void *source, int happenings, const char *name);

#endif
