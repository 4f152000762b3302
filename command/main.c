/* backhop: the operator's command. */
#include "common/command.h"

#include "common/options.h"
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

static void print_table(const command *table, size_t size)
{
    for (size_t i = 0; i < size; i++)
        print_wrapped(table[i].summary, printf("  %-9s ", table[i].name), 12);
}

static int help(const char *whole, const char *first, const command *table, size_t size, const char *last)
{
    printf("Usage: %s COMMAND [OPTION...]\n", whole);
    print_wrapped(first, 0, 0);
    putchar('\n');
    print_table(table, size);
    printf("\n'%s COMMAND --help' shows the options of each.\n", whole);
    print_wrapped(last, 0, 0);
    return output_end(EX_OK);
}

int command_dispatch(const char *whole, const char *first, const command *table, size_t size, const char *last,
                     int count, char **arguments)
{
    const char *name = count > 1 ? arguments[1] : "";
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0)
        return help(whole, first, table, size, last);
    for (size_t i = 0; i < size; i++)
        if (strcmp(name, table[i].name) == 0) {
            char typed[128];
            snprintf(typed, sizeof typed, "%s %s", whole, name);
            options_name(typed);
            return table[i].run(count - 1, arguments + 1);
        }
    if (*name)
        complain("there is no command '%s'", name);
    else
        complain("which command?");
    fprintf(stderr, "'%s --help' lists them.\n", whole);
    return EX_USAGE;
}

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
