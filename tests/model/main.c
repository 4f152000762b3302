/* test-model: the model of RabbitMQ, by frames. */
#include "suites.h"

#include <stdlib.h>

int main(void)
{
    SRunner *runner = srunner_create(suite_topology());
    srunner_add_suite(runner, suite_messages());
    srunner_add_suite(runner, suite_sessions());
    srunner_add_suite(runner, suite_operator());
    srunner_add_suite(runner, suite_hostile());
    srunner_add_suite(runner, suite_memory());
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
