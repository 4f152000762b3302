/* Rungs: the ladder's grid, and which of its delays a policy uses. Internal. */
#ifndef BACKHOP_TOPOLOGY_RUNGS_H
#define BACKHOP_TOPOLOGY_RUNGS_H

#include <backhop/topology.h>

enum { BH__MOST_GRID_RUNGS = 400 }; /* R40 has 361 up to BH_POLICY_LONGEST_MS */

/* In ms, ascending. */
typedef struct bh__rungs {
    int64_t policy_ms[BH_TOPOLOGY_MOST_RUNGS];
    size_t count;
    int64_t demand_ms[BH__MOST_GRID_RUNGS]; /* that only a handler's request can need */
    size_t demand_count;
} bh__rungs;

/* Finds the rungs of a policy; NULL, or the sentence why it has none. */
const char *bh__rungs_make(bh__rungs *self, const bh_policy *policy, bh_series series);
/* The nearest of the policy's rungs on either side of a delay; the other one where there is none on a side. */
int64_t bh__rungs_below_ms(const bh__rungs *self, int64_t delay_ms);
int64_t bh__rungs_above_ms(const bh__rungs *self, int64_t delay_ms);
/* The lowest rung, the policy's or one made on demand, that is not below the delay. */
int64_t bh__rungs_floor_ms(const bh__rungs *self, int64_t delay_ms);
/* 1 where the rung is one of the policy's. */
int bh__rungs_has(const bh__rungs *self, int64_t rung_ms);

/* The lowest and highest delay of all of a policy's attempts. */
void bh__delays(const bh_policy *policy, int64_t *lowest_ms, int64_t *highest_ms);

#endif
