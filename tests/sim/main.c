/*
 * Simulations: histories of workers under virtual time, on the model of RabbitMQ. Scenarios are
 * histories with a name, and seeds are random ones. BACKHOP_SIM_SEED replays one seed;
 * BACKHOP_SIM_HISTORIES is how many are played (300); BACKHOP_SIM_TRACE prints all that happens.
 *
 *     test-sim --seeds FROM COUNT [MOST]     plays COUNT seeds from FROM on, without scenarios, until MOST have failed (20)
 */
#include "runner.h"
#include "suites.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_FAILURES = 20 };

static int run_runner(int count, char **words)
{
    uint64_t most = count == 3 ? strtoull(words[2], NULL, 10) : MOST_FAILURES;
    if (count < 2 || count > 3) {
        fprintf(stderr, "usage: test-sim [--seeds FROM COUNT [MOST]]\n");
        return EXIT_FAILURE;
    }
    return run_seeds(strtoull(words[0], NULL, 10), strtoull(words[1], NULL, 10), most) ? EXIT_FAILURE : EXIT_SUCCESS;
}

int main(int count, char **words)
{
    if (count > 1)
        return run_runner(strcmp(words[1], "--seeds") == 0 ? count - 2 : 0, words + 2);
    SRunner *runner = srunner_create(suite_scenarios());
    srunner_add_suite(runner, suite_seeds());
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
