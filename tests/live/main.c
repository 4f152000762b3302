/*
 * Runs every suite against the broker that AMQP_URL names; CK_RUN_SUITE, CK_RUN_CASE, CK_FORK, CK_VERBOSITY and the
 * other variables of Check are obeyed. Tests that need more than the broker offers are left out, and named.
 */
#include "suites.h"

#include "broker.h"
#include "consumer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int count, char **arguments)
{
    if (count == 9 && strcmp(arguments[1], "consume") == 0)
        return consumer_run(arguments + 2);
    Suite *(*const suites[])(void) = {
        suite_strategies, suite_copies,    suite_publishing, suite_strangers, suite_declaring, suite_connecting,
        suite_running,    suite_takeover,  suite_replay,     suite_recipes,   suite_holding,   suite_faults,
        suite_stopping,   suite_operation, suite_crashes,    suite_relay,     suite_seeing,    suite_clusters,
    };
    if (!broker_probe())
        return EXIT_FAILURE;
    printf("Testing on RabbitMQ %s\n", broker_version());
    if (!broker_can_be_controlled())
        printf(
            "Left out, because BACKHOP_BROKER_CTL is not set: what needs a second user, an alarm or a broker that is "
            "killed\n");
    if (!broker_node_url(3)[0])
        printf("Left out, because AMQP_URLS is not set: what needs a cluster of three nodes\n");
    if (!broker_tls_url()[0])
        printf("Left out, because AMQPS_URL is not set: what needs TLS\n");
    if (!broker_has_delayed_exchange())
        printf("Left out, because the broker has no plugin for it: rounds by delayed-exchange\n");
    fflush(stdout);
    SRunner *runner = srunner_create(NULL);
    for (size_t i = 0; i < sizeof suites / sizeof suites[0]; i++)
        srunner_add_suite(runner, suites[i]());
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
