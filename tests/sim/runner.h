/* Runner: plays many seeds in processes of their own, so that a failure ends one history and not
 * the run. */
#ifndef BACKHOP_TESTS_SIM_RUNNER_H
#define BACKHOP_TESTS_SIM_RUNNER_H

#include <stdint.h>

/* Plays the history of a seed. Aborts if it fails. */
void play_seed(uint64_t seed);

/*
 * Plays `count` seeds from `from` on. Prints each seed that failed, and how many histories ran per
 * second. Ends after `most` failures. Returns how many failed.
 */
uint64_t run_seeds(uint64_t from, uint64_t count, uint64_t most);

#endif
