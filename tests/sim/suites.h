/* Suites: what main.c runs. */
#ifndef BACKHOP_TESTS_SIM_SUITES_H
#define BACKHOP_TESTS_SIM_SUITES_H

#include <check.h>

Suite *suite_scenarios(void);
Suite *suite_seeds(void);

#endif
