/*
 * Handles the messages of the queue cdn-purge. Some of them fail at first. Writes the worker's
 * metrics into a file, in Prometheus' text format: every ten seconds, with or without messages, and
 * when it stops.
 *
 *     AMQP_URL=amqp://guest:guest@localhost/ ./metrics backhop.prom
 */
#include <backhop.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { EVERY_S = 10, LOOK_MS = 1000 };

static bh_worker *worker;

static void stop(int number)
{
    (void)number;
    bh_worker_stop(worker, 5000);
}

/* Adds up the counts of every worker of the process: here it is one. A reader never finds the file
 * half written. */
static void write_metrics(const char *file)
{
    char fresh[4096];
    bh_metrics *sum;
    snprintf(fresh, sizeof fresh, "%s.new", file);
    FILE *out = fopen(fresh, "w");
    if (out && bh_metrics_new(&sum) == BH_OK) {
        bh_worker_read_metrics(worker, sum);
        fputs(bh_metrics_text(sum).data, out);
        bh_metrics_free(sum);
    }
    if (!out || fclose(out) != 0 || rename(fresh, file) != 0)
        perror(file);
}

static void purge(bh_message *message)
{
    if (bh_worker_attempt(worker, message) > 1 || bh_message_body(message).size % 2) {
        bh_settlement done = {.outcome = BH_OUTCOME_OK};
        bh_worker_settle(worker, message, &done);
        return;
    }
    bh_settlement failed = {
        .outcome = BH_OUTCOME_FAILED, .error = bh_str("507 queue is full"), .error_class = bh_str("QueueFull")};
    bh_worker_settle(worker, message, &failed);
}

/* Until the worker has stopped. */
static void run(const char *file)
{
    bh_status status = BH_OK;
    time_t written = 0;
    while (status == BH_OK || status == BH_ERR_TIMEOUT) {
        bh_message *message;
        bh_event *event;
        status = bh_worker_take(worker, &message, LOOK_MS);
        if (status == BH_OK) {
            purge(message);
            bh_message_free(message);
        }
        while (bh_worker_take_event(worker, &event) == BH_OK) {
            fprintf(stderr, "%s\n", bh_event_line(event).data);
            bh_event_free(event);
        }
        if (time(NULL) - written >= EVERY_S || (status != BH_OK && status != BH_ERR_TIMEOUT)) {
            write_metrics(file);
            written = time(NULL);
        }
    }
}

int main(int count, char **words)
{
    const char *url = getenv("AMQP_URL");
    bh_policy *policy;
    bh_topology *topology;
    bh_metrics *metrics;

    if (count != 2) {
        fprintf(stderr, "usage: metrics FILE\n");
        return EXIT_FAILURE;
    }
    if (bh_policy_new(&policy) != BH_OK || bh_topology_new(&topology, bh_str("cdn-purge")) != BH_OK ||
        bh_metrics_new(&metrics) != BH_OK)
        return EXIT_FAILURE;
    bh_topology_settings settings;
    bh_topology_defaults(&settings);
    settings.declares_work_queue = 1;
    bh_topology_set(topology, &settings);
    bh_topology_build(topology, policy);
    bh_metrics_add_error_type(metrics, bh_str("QueueFull")); /* any other is _OTHER */
    if (bh_worker_new(&worker, policy, topology) != BH_OK)
        return EXIT_FAILURE;
    bh_worker_set_metrics(worker, metrics);
    signal(SIGINT, stop);
    signal(SIGTERM, stop);

    bh_status status = bh_worker_add_uri(worker, bh_str(url ? url : "amqp://guest:guest@localhost/"));
    if (status == BH_OK)
        status = bh_worker_start(worker);
    if (status == BH_OK)
        run(words[1]);
    else
        fprintf(stderr, "metrics: %s\n", bh_worker_error(worker).data);

    bh_worker_free(worker);
    bh_metrics_free(metrics);
    bh_topology_free(topology);
    bh_policy_free(policy);
    return status == BH_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
