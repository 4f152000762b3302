/*
 * The smallest worker: messages of the queue "cdn-purge" that fail come back later, and are parked
 * after ten attempts.
 *
 *     cc retry.c -lbackhop -o retry && AMQP_URL=amqp://guest:guest@localhost/ ./retry
 *
 * Publish something to the queue "cdn-purge" and watch; Ctrl-C ends it.
 */
#include <backhop.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

static bh_worker *worker;

static void stop(int signal_number)
{
    (void)signal_number;
    bh_worker_stop(worker, 20000); /* 20 s for the message in hand */
}

static bh_outcome purge(bh_worker *self, bh_message *message, void *data)
{
    (void)data;
    int attempt = (int)bh_worker_attempt(self, message), full = attempt < 3; /* a real API needs no help to fail */

    printf("%s, attempt %d: %s\n", bh_message_body(message).data, attempt, full ? "507 queue is full" : "purged");
    if (!full)
        return BH_OUTCOME_OK;
    bh_settlement failed = {.outcome = BH_OUTCOME_FAILED, .error = bh_str("507 queue is full")};
    bh_worker_settle(self, message, &failed);
    return failed.outcome;
}

static void report(bh_worker *self, const bh_event *event, void *data)
{
    (void)self;
    (void)data;
    fprintf(stderr, "%s\n", bh_event_line(event).data);
}

int main(void)
{
    const char *url = getenv("AMQP_URL");
    bh_policy *policy;
    bh_topology *topology;

    if (bh_policy_new(&policy) != BH_OK || bh_topology_new(&topology, bh_str("cdn-purge")) != BH_OK)
        return EXIT_FAILURE;
    bh_topology_settings settings;
    bh_topology_defaults(&settings);
    settings.declares_work_queue = 1;
    bh_topology_set(topology, &settings);
    bh_topology_build(topology, policy);
    if (bh_worker_new(&worker, policy, topology) != BH_OK)
        return EXIT_FAILURE;
    signal(SIGINT, stop);
    signal(SIGTERM, stop);

    bh_status status = bh_worker_add_uri(worker, bh_str(url ? url : "amqp://guest:guest@localhost/"));
    if (status == BH_OK)
        status = bh_worker_run(worker, purge, report, NULL);
    if (status != BH_OK)
        fprintf(stderr, "retry: %s\n", bh_worker_error(worker).data);

    bh_worker_free(worker);
    bh_topology_free(topology);
    bh_policy_free(policy);
    return status == BH_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
