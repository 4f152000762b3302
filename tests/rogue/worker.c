/* rogue-worker URI [idle|race|patient]: consumes queue "work" from a rogue broker and fails each
 * message. Idle: takes no message. Patient: waits for confirms as long as workers do. Race: a
 * second thread and this one count without a lock, for helgrind to find. Prints a line per event:
 * its name, its delay in ms, its log line. SIGTERM stops it. */
#include <backhop/adapter.h>

#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PREFETCH = 20, CONNECT_MS = 3000, CONFIRM_MS = 1000, PATIENT_MS = 30000, STOP_MS = 500, POLL_MS = 1000 };

static bh_worker *worker;

static void on_signal(int number)
{
    (void)number;
    bh_worker_stop(worker, STOP_MS);
}

static void *count(void *counter)
{
    ++*(volatile int *)counter;
    return NULL;
}

static void race(void)
{
    int counter = 0;
    pthread_t thread;
    if (pthread_create(&thread, NULL, count, &counter) != 0)
        return;
    count(&counter);
    pthread_join(thread, NULL);
}

static void fail_next(void)
{
    const bh_settlement failed = {.outcome = BH_OUTCOME_FAILED, .error = bh_str("507 queue is full")};
    for (bh_message *message; bh_worker_take(worker, &message, 0) == BH_OK;) {
        bh_worker_settle(worker, message, &failed);
        bh_message_free(message);
    }
}

/* Returns 0 after the last event. */
static int print_events(void)
{
    int is_running = 1;
    for (bh_event *event; bh_worker_take_event(worker, &event) == BH_OK;) {
        bh_event_kind kind = bh_event_what(event);
        int64_t delay_ms = bh_event_has(event, BH_FIELD_DELAY) ? bh_event_int(event, BH_FIELD_DELAY) : 0;
        printf("%s %" PRId64 " %s\n", bh_event_name((int)kind).data, delay_ms, bh_event_line(event).data);
        is_running &= kind != BH_EVENT_DRAINED;
        bh_event_free(event);
    }
    fflush(stdout);
    return is_running;
}

int main(int argument_count, char **arguments)
{
    bh_policy *policy = NULL;
    bh_topology *topology = NULL;
    const char *mode = argument_count < 3 ? "" : arguments[2];
    int takes = strcmp(mode, "idle") != 0;
    int confirm_ms = strcmp(mode, "patient") == 0 ? PATIENT_MS : CONFIRM_MS;

    if (argument_count < 2 || bh_policy_new(&policy) != BH_OK || bh_topology_new(&topology, bh_str("work")) != BH_OK ||
        bh_topology_build(topology, policy) != BH_OK || bh_worker_new(&worker, policy, topology) != BH_OK ||
        bh_worker_add_uri(worker, bh_str(arguments[1])) != BH_OK)
        return EXIT_FAILURE;
    bh_worker_settings settings;
    bh_worker_defaults(&settings);
    settings.prefetch = PREFETCH;
    settings.connect_timeout_ms = CONNECT_MS;
    settings.confirm_timeout_ms = confirm_ms;
    for (int kind = 0; kind < BH_EVENT_LAST; kind++)
        settings.emits[kind] = 1;
    if (bh_worker_set(worker, &settings) != BH_OK)
        return EXIT_FAILURE;
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGTERM, &action, NULL);
    if (bh_worker_start(worker) != BH_OK)
        return EXIT_FAILURE;
    if (strcmp(mode, "race") == 0)
        race();
    while (print_events()) {
        struct pollfd ready = {.fd = bh_worker_fd(worker), .events = POLLIN};
        if (takes)
            fail_next();
        /* an idle worker's descriptor stays readable, because messages wait */
        poll(takes ? &ready : NULL, takes ? 1 : 0, takes ? POLL_MS : POLL_MS / 20);
    }
    bh_worker_free(worker);
    bh_topology_free(topology);
    bh_policy_free(policy);
    return EXIT_SUCCESS;
}
