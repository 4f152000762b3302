/* Rungs: the ladder's grid, and which of its delays a policy uses. Internal. */
#ifndef BACKHOP_TOPOLOGY_RUNGS_H
#define BACKHOP_TOPOLOGY_RUNGS_H

#include <backhop/topology.h>

enum { BH__MOST_GRID_RUNGS = 400 }; /* R40 has 361 up to BH_POLICY_LONGEST_MS */

/* In ms, ascending. */
typedef struct bh__rungs {
    int64_t policy_ms[BH_TOPOLOGY_MOST_RUNGS]; /* that the policies need */
    size_t count;
    int64_t demand_ms[BH__MOST_GRID_RUNGS]; /* that only a handler's request can need */
    size_t demand_count;
} bh__rungs;

/* Begins without a rung. */
void bh__rungs_clear(bh__rungs *self);
/* Adds the rungs of a policy; NULL, or the sentence why it cannot be. */
const char *bh__rungs_add(bh__rungs *self, const bh_policy *policy, bh_series series);
/* Where no policy needs a rung, because nothing is tried again: makes on demand what bh_plan_guard needs for messages
 * that crashed their consumers. */
void bh__rungs_add_crash_waits(bh__rungs *self, const bh_policy *policy, bh_series series);
/* 1 where each of the other's rungs is there; one that the other makes on demand may be there at all times. */
int bh__rungs_include(const bh__rungs *self, const bh__rungs *other);
/* The nearest of the policy's rungs on either side of a delay; the other one where there is none on a side. */
int64_t bh__rungs_below_ms(const bh__rungs *self, int64_t delay_ms);
int64_t bh__rungs_above_ms(const bh__rungs *self, int64_t delay_ms);
/* The lowest rung, the policy's or one made on demand, that is not below the delay. */
int64_t bh__rungs_floor_ms(const bh__rungs *self, int64_t delay_ms);
/* How many of the policies' rungs are not above a delay. */
size_t bh__rungs_up_to(const bh__rungs *self, int64_t delay_ms);
/* The nearest rungs on either side of a delay, the policies' and those made on demand; 0 where there is none. */
int64_t bh__rungs_any_below_ms(const bh__rungs *self, int64_t delay_ms);
int64_t bh__rungs_any_above_ms(const bh__rungs *self, int64_t delay_ms);
/* 1 where the rung is one of the policies'. */
int bh__rungs_has(const bh__rungs *self, int64_t rung_ms);

/* The lowest and highest delay of all of a policy's attempts. */
void bh__delays(const bh_policy *policy, int64_t *lowest_ms, int64_t *highest_ms);

#endif
