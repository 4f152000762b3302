/*
 * test-live [SUITE...] or test-live but SUITE...: runs these suites, or all but these, against the
 * broker that AMQP_URL names; without an argument all. CK_RUN_CASE, CK_FORK, CK_VERBOSITY and the
 * other variables of Check are obeyed. Tests that need more than the broker offers are left out,
 * and named.
 */
#include "suites.h"

#include "broker.h"
#include "consumer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct suite {
    const char *name;
    Suite *(*make)(void);
} suites[] = {
    {"strategies", suite_strategies}, {"copies", suite_copies},
    {"publishing", suite_publishing}, {"strangers", suite_strangers},
    {"declaring", suite_declaring},   {"connecting", suite_connecting},
    {"running", suite_running},       {"takeover", suite_takeover},
    {"replay", suite_replay},         {"holding", suite_holding},
    {"faults", suite_faults},         {"stopping", suite_stopping},
    {"operation", suite_operation},   {"crashes", suite_crashes},
    {"relay", suite_relay},           {"seeing", suite_seeing},
    {"clusters", suite_clusters},     {"contract", suite_contract},
    {"breaker", suite_breaker},       {"breaker_ends", suite_breaker_ends},
};

enum { SUITES = sizeof suites / sizeof suites[0] };

/* Sets for each suite whether to run it. Returns false if a word is no suite's name. */
static int suites_read(char **words, int is_chosen[SUITES])
{
    int chosen = words[0] != NULL && strcmp(words[0], "but") != 0;
    for (size_t i = 0; i < SUITES; i++)
        is_chosen[i] = !chosen;
    if (words[0] && !chosen)
        words++;
    for (; *words; words++) {
        size_t at = 0;
        while (at < SUITES && strcmp(suites[at].name, *words) != 0)
            at++;
        if (at == SUITES) {
            fprintf(stderr, "test-live: there is no suite \"%s\"\n", *words);
            return 0;
        }
        is_chosen[at] = chosen;
    }
    return 1;
}

int main(int count, char **arguments)
{
    if (count == 9 && strcmp(arguments[1], "consume") == 0)
        return consumer_run(arguments + 2);
    int is_chosen[SUITES];
    if (!suites_read(arguments + 1, is_chosen))
        return EXIT_FAILURE;
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
    for (size_t i = 0; i < SUITES; i++)
        if (is_chosen[i])
            srunner_add_suite(runner, suites[i].make());
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
