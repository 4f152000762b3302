/* backhop: the operator's command. */
#include "common/command.h"

#include "common/output.h"

#include <backhop/adapter.h>

#include <stdio.h>
#include <string.h>
#include <sysexits.h>

static const command commands[] = {
    {"parked", "messages that had their last attempt: list, show, replay, save, load, drop", parked_main},
    {"web", "parked messages, waits and problems in a browser", web_main},
    {"doctor", "finds problems of the broker, topology and queues", doctor_main},
    {"top", "ready, waiting and parked messages, live", top_main},
    {"exporter", "the same for Prometheus, over HTTP", exporter_main},
    {"topology", "exchanges, queues and bindings for retries: show, declare, verify, export, permissions, dot",
     topology_main},
    {"migrate", "takes over messages from hand-made wait queues", migrate_main},
    {"relay", "retries for consumers that can only reject; runs until it is stopped", relay_main},
    {"model", "a broker for tests: RabbitMQ in memory, whose waits take no time", model_main},
    {"schedule", "what a policy does: attempts, delays, wait queues", schedule_main},
    {"simulate", "what a policy does to a downstream that fails", simulate_main},
};

static const char *const intro = "An operator's commands for retries on RabbitMQ, by AMQP.\n";
static const char *const end =
    "AMQP_URL or --uri names the broker. Results go to standard output, with --json as one object a line; messages go "
    "to standard error. NO_COLOR is honoured. Exit codes are as in sysexits: 64 wrong usage, 69 the broker refuses or "
    "something is missing, 75 try again, 130 interrupted.\n";

int main(int count, char **arguments)
{
    output_begin();
    if (count == 2 && strcmp(arguments[1], "--version") == 0) {
        bh_librabbitmq librabbitmq;
        bh_worker_librabbitmq(&librabbitmq);
        printf("backhop %s (librabbitmq %s)\n", bh_version(), librabbitmq.loaded.data);
        return output_end(EX_OK);
    }
    return command_dispatch("backhop", intro, commands, sizeof commands / sizeof commands[0], end, count, arguments);
}
