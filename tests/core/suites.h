/* Suites: what main.c runs. A new one is declared here and added to the list there. */
#ifndef BACKHOP_TESTS_SUITES_H
#define BACKHOP_TESTS_SUITES_H

#include <check.h>

Suite *suite_status(void);
Suite *suite_duration(void);
Suite *suite_delivery(void);
Suite *suite_history(void);
Suite *suite_policy(void);
Suite *suite_breaker(void);
Suite *suite_flow(void);
Suite *suite_subscription(void);
Suite *suite_silence(void);
Suite *suite_calls(void);
Suite *suite_plan(void);
Suite *suite_replay(void);
Suite *suite_topology(void);
Suite *suite_declaring(void);
Suite *suite_ledger(void);
Suite *suite_event(void);
Suite *suite_metrics(void);
Suite *suite_relay(void);
Suite *suite_handlers(void);

#endif
