/*
 * Simulations: histories of workers under virtual time, on the model of RabbitMQ. Scenarios are histories with a name,
 * and seeds are random ones. BACKHOP_SIM_SEED replays one seed; BACKHOP_SIM_HISTORIES is how many are played (300);
 * BACKHOP_SIM_TRACE prints all that happens.
 */
#include "suites.h"

#include <stdlib.h>

int main(void)
{
    SRunner *runner = srunner_create(suite_scenarios());
    srunner_add_suite(runner, suite_seeds());
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
