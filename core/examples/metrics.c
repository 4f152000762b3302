/*
 * Handles the messages of the queue cdn-purge, some of which fail at first, and writes the worker's metrics into a file,
 * in Prometheus' text format: every ten seconds, and when it stops.
 *
 *     AMQP_URL=amqp://guest:guest@localhost/ ./metrics backhop.prom
 */
#include <backhop.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { EVERY_S = 10 };

static bh_worker *worker;
static const char *file;
static time_t written;

static void stop(int number)
{
    (void)number;
    bh_worker_stop(worker, 5000);
}

/* Adds up what every worker of the process has counted: here it is one. */
static void write_metrics(void)
{
    bh_metrics *sum;
    FILE *out = fopen(file, "w");
    if (out && bh_metrics_new(&sum) == BH_OK) {
        bh_worker_read_metrics(worker, sum);
        fputs(bh_metrics_text(sum).data, out);
        bh_metrics_free(sum);
    }
    if (out)
        fclose(out);
    written = time(NULL);
}

static bh_outcome purge(bh_worker *self, bh_message *message, void *data)
{
    (void)data;
    if (time(NULL) - written >= EVERY_S)
        write_metrics();
    if (bh_worker_attempt(self, message) > 1 || bh_message_body(message).size % 2)
        return BH_OUTCOME_OK;
    bh_worker_set_error_class(self, message, bh_str("QueueFull"));
    bh_worker_fail(self, message, bh_str("507 queue is full"), 0);
    return BH_OUTCOME_FAILED;
}

static void report(bh_worker *self, const bh_event *event, void *data)
{
    (void)self;
    (void)data;
    fprintf(stderr, "%s\n", bh_event_line(event).data);
}

int main(int count, char **words)
{
    const char *url = getenv("AMQP_URL");
    bh_policy *policy;
    bh_topology *topology;
    bh_metrics *metrics;

    file = count > 1 ? words[1] : "/dev/stdout";
    if (bh_policy_new(&policy) != BH_OK || bh_topology_new(&topology, bh_str("cdn-purge")) != BH_OK ||
        bh_metrics_new(&metrics) != BH_OK)
        return EXIT_FAILURE;
    bh_topology_set_work_queue_type(topology, BH_QUEUE_QUORUM);
    bh_topology_build(topology, policy);
    bh_metrics_add_error_type(metrics, bh_str("QueueFull")); /* any other is _OTHER */
    if (bh_worker_new(&worker, policy, topology) != BH_OK)
        return EXIT_FAILURE;
    bh_worker_set_metrics(worker, metrics);
    signal(SIGINT, stop);
    signal(SIGTERM, stop);

    bh_status status = bh_worker_add_uri(worker, bh_str(url ? url : "amqp://guest:guest@localhost/"));
    if (status == BH_OK)
        status = bh_worker_run(worker, purge, report, NULL);
    if (status != BH_OK)
        fprintf(stderr, "metrics: %s\n", bh_worker_error(worker).data);
    write_metrics();

    bh_worker_free(worker);
    bh_metrics_free(metrics);
    bh_topology_free(topology);
    bh_policy_free(policy);
    return status == BH_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
