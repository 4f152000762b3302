/* Runs every suite of the core; CK_RUN_SUITE, CK_FORK, CK_VERBOSITY and the other variables of
 * Check are obeyed. */
#include "suites.h"

#include <stdlib.h>

int main(void)
{
    Suite *(*const suites[])(void) = {
        suite_status,  suite_duration, suite_delivery,     suite_history, suite_policy,
        suite_breaker, suite_flow,     suite_subscription, suite_calls,   suite_plan,
        suite_replay,  suite_topology, suite_declaring,    suite_ledger,  suite_event,
        suite_metrics, suite_relay,    suite_handlers,     suite_silence,
    };
    SRunner *runner = srunner_create(NULL);
    for (size_t i = 0; i < sizeof suites / sizeof suites[0]; i++)
        srunner_add_suite(runner, suites[i]());
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
