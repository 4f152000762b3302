/* Set-ups: the strategies, with each queue type, that this broker can serve. */
#ifndef BACKHOP_LIVE_SETUPS_H
#define BACKHOP_LIVE_SETUPS_H

#include "rig.h"

typedef struct setup {
    const char *name;
    bh_strategy strategy;
    bh_queue_type type;
    int publishes; /* a retry is a copy that the worker publishes */
} setup;

extern const setup setups[];
extern const int setup_count;

int setup_can_be_served(const setup *self);
/* The first that can be served: a ladder. */
int setup_first(void);
/* A rig for setups[i]. */
rig *setup_rig(int i);
/* Adds a test case (add_setup_case) to the suite for each set-up that can be served. It has the
 * tests whose `publishes` allows the set-up. A test gets the set-up's index as _i. */
typedef struct setup_test {
    const TTest *test;
    int publishers_only;
} setup_test;
void setup_add_tests(Suite *suite, const setup_test *tests, size_t count);

/* A test case with a limit that suits a busy machine. */
TCase *add_case(Suite *suite, const char *name);
/*
 * Tags a case "long", and returns it. CK_EXCLUDE_TAGS=long leaves it out, for the fast profile. A
 * test is long if it takes 2 s or more on a quiet machine, or has an alarm or a restart of the
 * broker.
 */
TCase *long_case(TCase *tests);
/* Tags a case "long" and "longest": it waits for half a minute. CK_EXCLUDE_TAGS=longest leaves it
 * out, for sanitizers. */
TCase *longest_case(TCase *tests);
/* A test case for setups[i]. It is long unless setups[i] is the first that retries as it does: by
 * copies, or not. */
TCase *add_setup_case(Suite *suite, int i);

#endif
