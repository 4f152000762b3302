#include "consumer.h"
#include "../policies.h"

#include <backhop/worker.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static volatile sig_atomic_t is_stopping;

static void on_term(int number)
{
    (void)number;
    is_stopping = 1;
}

static void must(bh_status status, const char *what)
{
    if (status == BH_OK)
        return;
    fprintf(stderr, "%s: %s\n", what, bh_status_text(status).data);
    exit(EXIT_FAILURE);
}

bh_policy *consumer_policy(int64_t initial_ms, int64_t max_ms)
{
    bh_policy *policy;
    must(bh_policy_new(&policy), "policy");
    must(policy_set_initial_ms(policy, initial_ms), "initial");
    must(policy_set_max_ms(policy, max_ms), "max");
    return policy;
}

static void tell(bh_bytes body)
{
    char line[64];
    int size = snprintf(line, sizeof line, "%s\n", body.data);
    if (write(STDOUT_FILENO, line, (size_t)size) != size)
        exit(EXIT_FAILURE);
}

/* Takes what there is. */
static void take_all(bh_worker *worker, const char *killer)
{
    bh_message *message;
    while (bh_worker_take(worker, &message, 0) == BH_OK) {
        bh_bytes body = bh_message_body(message);
        if (strcmp(killer, "*") == 0 || (*killer && strcmp(body.data, killer) == 0))
            raise(SIGKILL);
        tell(body);
        if (*killer)
            must(bh_worker_settle(worker, message, &(bh_settlement){.outcome = BH_OUTCOME_OK}), "settle");
        bh_message_free(message);
    }
}

int consumer_run(char **arguments)
{
    enum { URL, NAMESPACE, QUEUE, INITIAL, MAX, PREFETCH, KILLER };
    bh_policy *policy = consumer_policy(atoll(arguments[INITIAL]), atoll(arguments[MAX]));
    bh_topology *topology;
    bh_worker *worker;
    struct sigaction action = {.sa_handler = on_term};
    sigaction(SIGTERM, &action, NULL);
    must(bh_topology_new(&topology, bh_str(arguments[QUEUE])), "topology");
    bh_topology_settings of;
    bh_topology_defaults(&of);
    of.name_space = bh_str(arguments[NAMESPACE]);
    of.declares_work_queue = 1;
    must(bh_topology_set(topology, &of), "topology's settings");
    must(bh_topology_build(topology, policy), "build");
    must(bh_worker_new(&worker, policy, topology), "worker");
    must(bh_worker_add_uri(worker, bh_str(arguments[URL])), "URL");
    bh_worker_settings settings;
    bh_worker_defaults(&settings);
    settings.mode = BH_MODE_NONE;
    settings.prefetch = atoi(arguments[PREFETCH]);
    must(bh_worker_set(worker, &settings), "settings");
    must(bh_worker_start(worker), "start");
    while (!is_stopping) {
        struct pollfd ready = {.fd = bh_worker_fd(worker), .events = POLLIN};
        bh_event *event;
        if (poll(&ready, 1, 100) < 0 && errno != EINTR)
            return EXIT_FAILURE;
        while (bh_worker_take_event(worker, &event) == BH_OK)
            bh_event_free(event);
        take_all(worker, arguments[KILLER]);
    }
    bh_worker_free(worker);
    bh_topology_free(topology);
    bh_policy_free(policy);
    return EXIT_SUCCESS;
}
