/* Suites: what main.c runs against the broker that AMQP_URL names. A new one is declared here and
 * added there. */
#ifndef BACKHOP_LIVE_SUITES_H
#define BACKHOP_LIVE_SUITES_H

#include <check.h>

Suite *suite_strategies(void);
Suite *suite_copies(void);
Suite *suite_publishing(void);
Suite *suite_strangers(void);
Suite *suite_declaring(void);
Suite *suite_connecting(void);
Suite *suite_running(void);
Suite *suite_takeover(void);
Suite *suite_replay(void);
Suite *suite_holding(void);
Suite *suite_faults(void);
Suite *suite_stopping(void);
Suite *suite_operation(void);
Suite *suite_seeing(void);
Suite *suite_crashes(void);
Suite *suite_relay(void);
Suite *suite_clusters(void);
Suite *suite_contract(void);
Suite *suite_breaker(void);
Suite *suite_breaker_ends(void);
const TTest *test_of_a_relay_on_a_cluster(void);         /* which leaves it cut off */
const TTest *test_of_a_relay_whose_node_is_killed(void); /* the third, which it leaves so */

#endif
