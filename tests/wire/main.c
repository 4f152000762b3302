/* Runs every suite of the wire layer, without a broker; the variables of Check are obeyed. */
#include "suites.h"

#include <stdlib.h>

int main(void)
{
    Suite *(*const suites[])(void) = {
        suite_buffer, suite_clock,     suite_report, suite_uri,   suite_content, suite_compatibility,
#ifdef BACKHOP_HAS_LIBRABBITMQ
        suite_link,   suite_assembler, suite_socket, suite_login,
#endif
    };
    SRunner *runner = srunner_create(NULL);
    for (size_t i = 0; i < sizeof suites / sizeof suites[0]; i++)
        srunner_add_suite(runner, suites[i]());
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
