/* backhop parked: its sub-commands. */
#include "common/command.h"
#include "parked/parked.h"

static const command commands[] = {
    {"list", "groups of messages that failed alike", parked_list},
    {"show", "one message: its story, properties and headers", parked_show},
    {"replay", "sends messages back to their own work queue, or to another", parked_replay},
    {"save", "writes messages to a file; they stay in their queue", parked_save},
    {"load", "publishes the messages of a file", parked_load},
    {"drop", "saves messages to a file, then takes them off the queue", parked_drop},
};

int parked_main(int count, char **arguments)
{
    return command_dispatch("backhop parked",
                            "Messages that had their last attempt. No look at them changes order or number.\n",
                            commands, sizeof commands / sizeof commands[0], "", count, arguments);
}
