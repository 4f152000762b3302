/* Rungs: the grid of the ladder, and the rungs that policies need. Internal. */
#ifndef BACKHOP_TOPOLOGY_RUNGS_H
#define BACKHOP_TOPOLOGY_RUNGS_H

#include <backhop/topology.h>

enum { BH__MOST_GRID_RUNGS = 400 }; /* R40 has 361 up to BH_POLICY_LONGEST_MS */

/* Rungs in ms, ascending. */
typedef struct bh__rungs {
    int64_t policy_ms[BH_TOPOLOGY_MOST_RUNGS]; /* needed by the policies */
    size_t count;
    int64_t demand_ms[BH__MOST_GRID_RUNGS]; /* on demand: needed only by a handler's request */
    size_t demand_count;
} bh__rungs;

/* Removes all rungs. */
void bh__rungs_clear(bh__rungs *self);
/*
 * Adds the rungs of a policy. Returns NULL, or the reason why the ladder cannot serve the policy.
 */
const char *bh__rungs_add(bh__rungs *self, const bh_policy *policy, bh_series series);
/* Adds rungs on demand for bh_plan_guard, if no policy has a retry and so no rung. */
void bh__rungs_add_crash_rungs(bh__rungs *self, const bh_policy *policy, bh_series series);
/*
 * Returns 1 if all rungs of `other` are there. A rung on demand of `other` may be of either kind.
 */
int bh__rungs_include(const bh__rungs *self, const bh__rungs *other);

/*
 * Return the policies' nearest rung below or above a delay; the only nearest one if a side has
 * none.
 */
int64_t bh__rungs_below_ms(const bh__rungs *self, int64_t delay_ms);
int64_t bh__rungs_above_ms(const bh__rungs *self, int64_t delay_ms);
/* Returns the number of the policies' rungs up to a delay. */
size_t bh__rungs_up_to(const bh__rungs *self, int64_t delay_ms);
/* Returns 1 if the rung is needed by a policy. */
int bh__rungs_has(const bh__rungs *self, int64_t rung_ms);
/* Return the nearest rung of either kind at or below, at or above a delay; 0 if there is none. */
int64_t bh__rungs_any_below_ms(const bh__rungs *self, int64_t delay_ms);
int64_t bh__rungs_any_above_ms(const bh__rungs *self, int64_t delay_ms);

/* Reads the lowest and highest delay of all retries of a policy. */
void bh__delays(const bh_policy *policy, int64_t *lowest_ms, int64_t *highest_ms);

#endif
