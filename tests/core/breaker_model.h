/*
 * Breaker model: plays a history of calls against a breaker and checks after each what must always
 * hold. Calls end in any order, twice or never, and clocks jump or stand still. The property test
 * draws the history from a seed, the fuzz target from bytes.
 */
#ifndef BACKHOP_TESTS_BREAKER_MODEL_H
#define BACKHOP_TESTS_BREAKER_MODEL_H

/* Returns a number from 0 to below - 1. */
typedef unsigned breaker_draw(void *source, unsigned below);

/*
 * Plays `happenings` of them. Then it lets every call succeed, and checks that the breaker closes
 * and that its ramp ends. If a check fails, it writes the check and `name` to stderr, and aborts.
 */
void breaker_model_play(breaker_draw *draw, void *source, int happenings, const char *name);

#endif
