/* Plans: what the vectors of several nouns compare of them. */
#ifndef BACKHOP_TESTS_PLANS_H
#define BACKHOP_TESTS_PLANS_H

#include "vectors.h"

#define DEFAULT_NOW_MS INT64_C(1700000000000)

/* The keys of "expect" that expect_plan compares. */
#define PLAN_KEYS                                                                                                      \
    "action attempts deferrals delay_ms retry_after_met reason id exchange routing_key mandatory on_demand "           \
    "kept_properties "                                                                                                 \
    "expiration kept_headers headers headers_in_any_order headers_with headers_without"

/* BH_PLAN_RANDOM_BYTES of the case's "random", which may be NULL. */
void vector_fill_random(const vector *v, const json_t *json, char *out);
/* Compares the plan, and checks the invariants of every plan. */
void expect_plan(vector *v, const bh_plan *plan);

#endif
