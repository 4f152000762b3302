/* The suites of test-model. */
#ifndef BACKHOP_TESTS_MODEL_SUITES_H
#define BACKHOP_TESTS_MODEL_SUITES_H

#include <check.h>

Suite *suite_topology(void);
Suite *suite_messages(void);
Suite *suite_sessions(void);
Suite *suite_operator(void);
Suite *suite_hostile(void);
Suite *suite_memory(void);

#endif
